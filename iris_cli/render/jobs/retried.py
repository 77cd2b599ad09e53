"""The result of `iris retry`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from iris_cli.core.ids import AttemptId, JobId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.units import count
from iris_cli.ops.jobs.retry import Retried
from iris_cli.ops.views.cycles import Cycles
from iris_cli.render.console import Output
from iris_cli.render.fold import fold


class RetriedDocument(Struct, frozen=True):
    """The result of `iris retry`. `retried`: attempts that this call ordered to stop.

    `stopping`: attempts that are not proven gone, and their workers.
    """

    job: JobId
    retried: Sequence[AttemptId]
    stopping: Mapping[AttemptId, WorkerId]
    cycles: Cycles | None


def show(
    output: Output, cluster: Cluster, result: Retried, *, no_cycles: str = "", cycles: Cycles | None = None
) -> None:
    """The attempts that are being stopped. `no_cycles` says what to type if no cycle follows."""
    stopping = {attempt: cluster.attempt(attempt).worker for attempt in result.stopping}
    if output.as_json:
        output.document(RetriedDocument(result.job, result.retried, stopping, cycles))
        return
    hosts = [cluster.attempt(attempt).worker for attempt in result.retried]
    if result.retried:
        output.done(f"retrying {result.job}: stopping {_attempts(hosts)}")
    elif stopping:
        output.message(f"{result.job}: already stopping {_attempts(stopping.values())}")
    else:
        output.message(f"{result.job}: nothing to stop: no attempt is live; iris why {result.job}")
    if no_cycles:
        output.message(no_cycles)


def _attempts(hosts: Iterable[WorkerId]) -> str:
    each = list(hosts)
    return f"{count(len(each), 'attempt')} on {fold(dict.fromkeys(each))}"
