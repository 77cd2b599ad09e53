"""What workers keep of workspaces and set-ups, and which of that is still in use."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.messages.observations import Silence
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.worker import Worker
from iris_cli.ops.session import Session


def in_use(cluster: Cluster, worker: WorkerId) -> list[str]:
    """The hashes and keys of what attempts use there that live, or may."""
    from iris_cli.remote.launch_request import set_up_key

    attempts = [attempt_id for attempt_id, _ in cluster.live_on(worker)]
    attempts += [ghost.attempt for ghost in cluster.ghosts.get(worker, ())]
    used: dict[str, None] = {}
    for attempt_id in attempts:
        job = cluster.jobs[attempt_id.task.job]
        workspace = job.workspace.hash if job.workspace is not None else ""
        used |= {workspace: None} if workspace else {}
        used |= {set_up_key(workspace, job.setup): None} if job.setup else {}
    return list(used)


def any_kept(cluster: Cluster, attempts: Iterable[AttemptId]) -> bool:
    """Whether one of these attempts had a workspace or a set-up."""
    jobs = (cluster.jobs[each.task.job] for each in attempts)
    return any(job.workspace is not None or job.setup for job in jobs)


def unused(
    session: Session, cluster: Cluster, worker: Worker, unused_for: float, *, remove: bool
) -> int | Silence:
    """How many bytes nobody has used there for so many seconds; with `remove`, how many are left of that."""
    seen = session.runner.caches(
        session.target(worker),
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        keep=in_use(cluster, worker.id),
        unused_for=unused_for,
        remove=remove,
    )
    return seen if isinstance(seen, Silence) else seen.bytes
