"""Delete the files of attempts that ended long ago, and unused caches, on workers. Records of ends are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from iris_cli.core import AttemptId, AttemptState, Cluster, Worker, WorkerId
from iris_cli.core.lifecycle import reaping
from iris_cli.core.messages.observations import ReapReport, Silence
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.session import Session


def caches_in_use(cluster: Cluster, worker: WorkerId) -> list[str]:
    """Return the workspace hashes and set-up keys that live attempts and ghosts use on the worker."""
    from iris_cli.remote.launch_request import set_up_key

    attempts = [attempt_id for attempt_id, _ in cluster.live_attempts_on(worker)]
    attempts += [ghost.attempt for ghost in cluster.ghosts.get(worker, ())]
    used: dict[str, None] = {}
    for attempt_id in attempts:
        job = cluster.jobs[attempt_id.task.job]
        workspace = job.workspace.hash if job.workspace is not None else ""
        used |= {workspace: None} if workspace else {}
        used |= {set_up_key(workspace, job.setup): None} if job.setup else {}
    return list(used)


def have_caches(cluster: Cluster, attempts: Iterable[AttemptId]) -> bool:
    """Return True if any of these attempts had a workspace or a set-up command."""
    jobs = (cluster.jobs[each.task.job] for each in attempts)
    return any(job.workspace is not None or job.setup for job in jobs)


def unused_bytes(
    session: Session, worker: Worker, keep: Sequence[str], unused_for: float, *, remove: bool
) -> int | Silence:
    """Return the size of the caches that were not used for `unused_for` seconds, except the caches in `keep`.

    With `remove`, delete these caches first, and return the size of the caches that could not be deleted.
    """
    report = session.runner.caches.unused(
        session.target(worker),
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        keep=keep,
        unused_for=unused_for,
        remove=remove,
    )
    return report if isinstance(report, Silence) else report.bytes


def reap_call(session: Session, cluster: Cluster, worker: Worker) -> Call | None:
    """Return the call that deletes due files on the worker; None if no files are due or an attempt starts or stops."""
    due = reaping.attempts_due(cluster, worker, session.clock.now(), session.limits)
    if not due or any(
        attempt.state is not AttemptState.RUNNING for _, attempt in cluster.live_attempts_on(worker.id)
    ):
        return None
    reaped = {cluster.attempt(attempt_id).token: attempt_id for attempt_id in due}
    keep = caches_in_use(cluster, worker.id) if have_caches(cluster, due) else None

    def reap() -> ReapReport | Silence:
        report = session.runner.reap(session.target(worker), list(reaped))
        if keep is not None and not isinstance(report, Silence):
            unused_bytes(session, worker, keep, session.limits.reap_after, remove=True)
        return report

    return Call(context=structs.replace(observe.call_context(cluster, worker.id), reaped=reaped), act=reap)
