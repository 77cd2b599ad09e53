"""Port numbers for tasks: no two live attempts on a host have one in common."""

from __future__ import annotations

from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job

FIRST_PORT = 30_000
PORTS = 2_700
"""Below those that Linux gives to outgoing connections, above those where gangs meet."""


def choose_ports(cluster: Cluster, worker: WorkerId, job: Job, attempt: AttemptId) -> tuple[int, ...]:
    """A number for each name of the job's ports, in order, that no live attempt on the worker has.

    Another try begins elsewhere: what it had before may still be held. When all are taken it is told one of those,
    and finds it in use.
    """
    taken = {port for _, each in cluster.live_on(worker) for port in each.ports}
    start = job.order * 97 + attempt.task.index * 17 + attempt.number * 7
    numbers = [FIRST_PORT + (start + step) % PORTS for step in range(PORTS)]
    free = [number for number in numbers if number not in taken]
    return tuple([*free, *numbers][: len(job.ports)])
