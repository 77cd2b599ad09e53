"""Machines that were replaced: what lived on the old ones has ended with them, and their host keys mean nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.lifecycle import ghosts
from iris_cli.core.model.cluster import Cluster
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.cycle import send_stops
from iris_cli.ops.session import Session
from iris_cli.ops.setup.cluster_import.plan import Recreated


class OldMachine(Struct, frozen=True, kw_only=True):
    """A worker as the log knows it, whose machine is another one now.

    `over` are the attempts that end with it. `kept`: one that was placed there since the new machine is there, so that
    nothing is known to be over.
    """

    worker: WorkerId
    reason: str
    over: tuple[AttemptId, ...] = ()
    kept: AttemptId | None = None


def old_machines(cluster: Cluster, recreated: Sequence[Recreated]) -> list[OldMachine]:
    """The workers of these slices that the log knows."""
    return [
        _judged(cluster, worker, each)
        for each in recreated
        for worker in each.workers
        if worker in cluster.workers or worker in cluster.ghosts
    ]


def _judged(cluster: Cluster, worker: WorkerId, slice_: Recreated) -> OldMachine:
    known = worker in cluster.workers
    live = [attempt_id for attempt_id, _ in cluster.live_on(worker)] if known else []
    ghosts_there = [ghost.attempt for ghost in cluster.ghosts.get(worker, ())]
    since = slice_.made_at
    reason = f"slice {slice_.name} {slice_.how}"
    for attempt_id in (*live, *ghosts_there):
        if since is None or cluster.attempt(attempt_id).assigned_at >= since:
            return OldMachine(worker=worker, reason=reason, kept=attempt_id)
    return OldMachine(worker=worker, reason=reason, over=tuple(live))


def forget(session: Session, recreated: Sequence[Recreated]) -> list[OldMachine]:
    """The operator's consent: the old machines are off the books. Returns those that are."""
    done: list[OldMachine] = []
    with session.transaction() as draft:
        for each in old_machines(draft.cluster, recreated):  # the log may know more than when it was asked
            if each.kept is None:
                touched = [attempt_id.task.job for attempt_id in each.over]
                ghosts.machine_gone(draft, each.worker, each.reason)
                observe.settle(session, draft, dict.fromkeys(touched))
                done.append(each)
    send_stops(session)
    return done


def jobs_over(machines: Sequence[OldMachine]) -> Iterator[str]:
    """The jobs of which attempts end, each once."""
    yield from dict.fromkeys(str(attempt.task.job) for each in machines for attempt in each.over)
