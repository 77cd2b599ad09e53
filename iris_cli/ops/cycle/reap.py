"""Remove files of attempts that ended long ago and unused caches from workers. Results are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import structs

from iris_cli.core import AttemptId, AttemptState, Cluster, Worker, WorkerId
from iris_cli.core.lifecycle import reaping
from iris_cli.core.messages.observations import ReapReport, Silence
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.session import Session


def in_use(cluster: Cluster, worker: WorkerId) -> list[str]:
    """Return the workspace hashes and set-up keys that live or possibly live attempts use on the worker."""
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
    """Return True if one of these attempts had a workspace or a set-up."""
    jobs = (cluster.jobs[each.task.job] for each in attempts)
    return any(job.workspace is not None or job.setup for job in jobs)


def unused(
    session: Session, cluster: Cluster, worker: Worker, unused_for: float, *, remove: bool
) -> int | Silence:
    """Return the bytes unused for `unused_for` seconds on the worker; with `remove`, the bytes left after removal."""
    seen = session.runner.caches.unused(
        session.target(worker),
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        keep=in_use(cluster, worker.id),
        unused_for=unused_for,
        remove=remove,
    )
    return seen if isinstance(seen, Silence) else seen.bytes


def reap_call(session: Session, cluster: Cluster, worker: Worker) -> Call | None:
    """Return the call that removes due files from the worker; None if nothing is due or an attempt starts or stops."""
    due = reaping.due(cluster, worker, session.clock.now(), session.limits)
    if not due or any(attempt.state is not AttemptState.RUNNING for _, attempt in cluster.live_on(worker.id)):
        return None
    reaped = {cluster.attempt(attempt_id).token: attempt_id for attempt_id in due}
    known = structs.replace(observe.known_of(cluster, worker.id), reaped=reaped)
    act = partial(session.runner.reap, session.target(worker), list(reaped))
    if any_kept(cluster, due):
        act = partial(_with_caches, session, cluster, worker, act)
    return Call(known=known, act=act)


def _with_caches(
    session: Session, cluster: Cluster, worker: Worker, act: Callable[[], ReapReport | Silence]
) -> ReapReport | Silence:
    """Reap attempts, then unused caches: a cache becomes removable no later than the last attempt that used it."""
    seen = act()
    if not isinstance(seen, Silence):
        unused(session, cluster, worker, session.limits.reap_after, remove=True)
    return seen
