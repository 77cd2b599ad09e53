"""Submit a job."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core.cluster import Cluster
from iris_cli.core.constraints import AttributeValue
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId
from iris_cli.core.job import JobRequest
from iris_cli.core.lifecycle.near_misses import near_misses
from iris_cli.core.lifecycle.submit import over, submit
from iris_cli.core.scheduling import Plan
from iris_cli.ops import cycle
from iris_cli.ops.session import Session


def launch(session: Session, request: JobRequest) -> JobId:
    """Commit the job. It is in the log when this returns, and nothing has been sent anywhere."""
    with session.transaction() as draft:
        there = fleet(session, draft.cluster)
        job = submit(draft, over(request, session.config.defaults.job), there, session.limits)
        slips = list(near_misses(draft.cluster.jobs[job].constraints, there))
    for slip in slips:
        session.tell(f"warning: {slip}")
    return job


def dry_run(session: Session, request: JobRequest | None = None) -> tuple[Plan, Cluster, JobId | None]:
    """The plan of a cycle that began now, with the job if there is one; nothing is written or sent."""
    draft = Draft(session.view(), session.clock.now())
    job = None
    if request is not None:
        job = submit(
            draft, over(request, session.config.defaults.job), fleet(session, draft.cluster), session.limits
        )
    made, _ = cycle.assign(session, draft)
    return made, draft.cluster, job


def fleet(session: Session, cluster: Cluster) -> list[Mapping[str, AttributeValue]]:
    """The attributes of every worker there is: as registered, or as declared where it was never probed."""
    known = [worker.attributes for worker in cluster.workers.values() if worker.incarnation]
    return known + [
        host.attributes
        for worker_id, host in session.hosts.items()
        if worker_id not in cluster.workers or not cluster.workers[worker_id].incarnation
    ]
