"""What holds up a worker beside the attempts that iris owns: name it, and with the operator's consent stop it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from iris_cli.core import AttemptId, Cluster, Token, WorkerId
from iris_cli.core.events.events import WorkerUnwedged
from iris_cli.core.messages.observations import Holder, LockFile, RemoteState, Silence, UnwedgeReport
from iris_cli.errors import IrisError, UnreachableError
from iris_cli.ops.cycle.answers import token_of
from iris_cli.ops.names import find_worker
from iris_cli.ops.session import Session
from iris_cli.ops.workers import workers

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL."""

_PATIENCE = 20.0  # seconds beyond the grace until what was stopped should be gone
_PAUSE = 1.0
_LONGEST_COMMAND = 200  # characters of it that go on record


class Owner(StrEnum):
    """Whose something is, by the log."""

    IRIS = "iris"  # an attempt that lives: never touched here
    ENDED = "ended"  # what is left of an attempt that has ended
    UNKNOWN = "unknown"  # an attempt that the log never saw
    OTHER = "other"  # not started by iris, as far as can be seen


class Obstacle(Struct, frozen=True, kw_only=True):
    """A process that holds chips, or an attempt's directory there. `attempt` is the one it belongs to, if known."""

    owner: Owner
    holder: Holder | None = None
    token: Token | None = None
    attempt: AttemptId | None = None
    state: RemoteState | None = None  # of an attempt's directory

    @property
    def name(self) -> Holder | Token:
        """By what the worker is told to stop it: exactly this process, or exactly this attempt."""
        named = self.holder or self.token
        assert named is not None
        return named

    @property
    def key(self) -> tuple[object, ...]:
        """The same for the same thing in a later look."""
        holder = self.holder
        return (self.token,) if holder is None else (holder.boot_id, holder.pid, holder.start)


class Wedge(Struct, frozen=True, kw_only=True):
    """What was found on a worker. `unseen` processes of other users could not be looked into."""

    worker: WorkerId
    obstacles: tuple[Obstacle, ...]
    lock: LockFile = LockFile.NONE
    unseen: int = 0

    @property
    def clearable(self) -> tuple[Obstacle, ...]:
        """What may be stopped, if the operator wants it."""
        return tuple(each for each in self.obstacles if each.owner is not Owner.IRIS)


def look(session: Session, name: str) -> Wedge:
    """Ask a worker what is in the way there; nothing is changed. Raises UnreachableError, NotFoundError."""
    cluster = session.view()
    worker = find_worker(cluster, name).id
    return _found(cluster, _ask(session, cluster, worker))


def clear(session: Session, wedge: Wedge, *, grace: float = GRACE) -> Wedge:
    """Stop what was found, and wait until it is gone; returns what is still there of it.

    What iris owns is decided anew right before, on the log as it is then, and what is to be stopped goes on record
    first. A probe afterwards tells whether the worker can be used again.
    """
    with session.transaction() as draft:
        find_worker(draft.cluster, wedge.worker)
        own = _own(draft.cluster)
        wanted = {each.key: each for each in wedge.clearable if _token(each) not in own}
        if wanted:
            draft.record(_unwedged(wedge.worker, wanted.values()))
    report = _ask(session, session.cluster, wedge.worker, tuple(each.name for each in wanted.values()), grace)
    deadline = session.clock.monotonic() + grace + _PATIENCE
    while True:
        found = _found(session.cluster, report)
        left = tuple(each for each in found.clearable if each.key in wanted)
        if not left or session.clock.monotonic() >= deadline:
            break
        session.clock.sleep(_PAUSE)
        report = _ask(session, session.view(), wedge.worker)
    workers.probe(session, [wedge.worker])
    return Wedge(worker=wedge.worker, obstacles=left, lock=found.lock, unseen=found.unseen)


def _unwedged(worker: WorkerId, wanted: Iterable[Obstacle]) -> WorkerUnwedged:
    holders = [each.holder for each in wanted if each.holder is not None]
    return WorkerUnwedged(
        worker=worker,
        processes=tuple(f"{each.pid}: {each.command[:_LONGEST_COMMAND]}" for each in holders),
        attempts=tuple(each.token for each in wanted if each.holder is None and each.token is not None),
    )


def _ask(
    session: Session,
    cluster: Cluster,
    worker_id: WorkerId,
    stop: tuple[Holder | Token, ...] = (),
    grace: float = GRACE,
) -> UnwedgeReport:
    worker = find_worker(cluster, worker_id)
    known = [
        attempt.token
        for task in cluster.tasks.values()
        for attempt in task.attempts
        if attempt.worker == worker_id and not attempt.live
    ]
    keep = [attempt.token for _, attempt in cluster.live_on(worker_id)]
    keep.append(token_of(worker.id, worker.incarnation))  # what a new VM ran first is nobody's attempt
    seen = session.runner.unwedge(session.target(worker), keep=keep, known=known, clear=stop, grace=grace)
    if isinstance(seen, Silence):
        raise UnreachableError(
            f"no answer from {worker_id}: {seen.step}: {seen.detail}",
            hint=seen.hint or f"iris worker probe {worker_id}",
        )
    if worker.incarnation and (seen.boot_id, seen.incarnation) != (worker.boot_id, worker.incarnation):
        raise IrisError(
            f"{worker_id} was rebooted or re-created: its state in the log is outdated",
            hint=f"iris worker probe {worker_id}",
        )
    return seen


def _found(cluster: Cluster, report: UnwedgeReport) -> Wedge:
    by_token = {
        attempt.token: AttemptId(task.id, attempt.number)
        for task in cluster.tasks.values()
        for attempt in task.attempts
    }
    own = _own(cluster)
    holders = [
        Obstacle(
            owner=_owner(each.token, by_token, own),
            holder=each,
            attempt=by_token.get(each.token or Token("")),
        )
        for each in report.holders
    ]
    directories = [
        Obstacle(
            owner=_owner(each.token, by_token, own),
            token=each.token,
            attempt=by_token.get(each.token),
            state=each.state,
        )
        for each in report.attempts
    ]
    return Wedge(
        worker=report.worker, obstacles=(*holders, *directories), lock=report.lock, unseen=report.unseen
    )


def _own(cluster: Cluster) -> frozenset[Token]:
    """The tokens of every attempt that lives, wherever the log has it: two workers may be one host by mistake."""
    return frozenset(attempt.token for _, attempt in cluster.live_attempts())


def _owner(token: Token | None, known: dict[Token, AttemptId], own: frozenset[Token]) -> Owner:
    if token is None:
        return Owner.OTHER
    if token in own:
        return Owner.IRIS
    return Owner.ENDED if token in known else Owner.UNKNOWN


def _token(obstacle: Obstacle) -> Token | None:
    return obstacle.holder.token if obstacle.holder is not None else obstacle.token
