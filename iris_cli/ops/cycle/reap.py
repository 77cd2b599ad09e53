"""Remove from workers what attempts left there that ended long ago. How they ended stays, there and in the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from iris_cli.core.lifecycle import reaping
from iris_cli.core.messages.observations import ReapReport, Silence
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import AttemptState
from iris_cli.core.model.worker import Worker
from iris_cli.ops.cycle import caches, observe
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.session import Session


def reap_call(session: Session, cluster: Cluster, worker: Worker) -> Call | None:
    """The call that removes files there that are due; none while something there is being started or stopped."""
    due = reaping.due(cluster, worker, session.clock.now(), session.limits)
    if not due or any(attempt.state is not AttemptState.RUNNING for _, attempt in cluster.live_on(worker.id)):
        return None
    reaped = {cluster.attempt(attempt_id).token: attempt_id for attempt_id in due}
    known = replace(observe.known_of(cluster, worker.id), reaped=reaped)
    act = partial(session.runner.reap, session.target(worker), list(reaped))
    if caches.any_kept(cluster, due):
        act = partial(_with_caches, session, cluster, worker, act)
    return Call(known=known, act=act)


def _with_caches(
    session: Session, cluster: Cluster, worker: Worker, act: Callable[[], ReapReport | Silence]
) -> ReapReport | Silence:
    """What used a workspace last is reaped no sooner than that may go: so there is no other time to look."""
    seen = act()
    if not isinstance(seen, Silence):
        caches.unused(session, cluster, worker, session.limits.reap_after, remove=True)
    return seen
