"""Find the processes and attempts that block a worker, and stop them with the operator's consent."""

from enum import StrEnum

from msgspec import Struct

from iris_cli.core import AttemptId, Cluster, Token, WorkerId
from iris_cli.core.events.events import WorkerUnwedged
from iris_cli.core.messages.observations import ChipHolder, LockFile, RemoteState, Silence, UnwedgeReport
from iris_cli.errors import IrisError, UnreachableError
from iris_cli.ops.cycle.answers import set_up_token
from iris_cli.ops.names import find_worker
from iris_cli.ops.session import Session
from iris_cli.ops.workers import workers

GRACE = 30.0  # seconds between SIGTERM and SIGKILL

_EXTRA_WAIT = 20.0  # additional seconds after the grace period for processes to end
_PAUSE = 1.0  # seconds between two checks
_MAX_COMMAND = 200  # maximum characters of a command line in the log


class Owner(StrEnum):
    """Owner of a process or of an attempt's directory, according to the log."""

    IRIS = "iris"  # a live attempt, which unwedge never stops
    ENDED = "ended"  # an attempt that has ended
    UNKNOWN = "unknown"  # an attempt that is not in the log
    OTHER = "other"  # no attempt; probably iris did not start the process


class Obstacle(Struct, frozen=True, kw_only=True):
    """A process that holds chips (`holder`), or the directory of the attempt with this `token`.

    `attempt` is the attempt to which the process or directory belongs, or None if it is unknown.
    """

    owner: Owner
    holder: ChipHolder | None = None
    token: Token | None = None
    attempt: AttemptId | None = None
    state: RemoteState | None = None  # reported state of the attempt, for a directory

    @property
    def target(self) -> ChipHolder | Token:
        target = self.holder or self.token
        assert target is not None
        return target

    @property
    def key(self) -> tuple[object, ...]:
        """The identity of the obstacle. It is the same in all reports."""
        holder = self.holder
        return (self.token,) if holder is None else (holder.boot_id, holder.pid, holder.start)


class WorkerObstacles(Struct, frozen=True, kw_only=True):
    """The obstacles on a worker.

    `lock` is the state of libtpu's lock file. `unseen`: number of other users' processes that could not be inspected.
    """

    worker: WorkerId
    obstacles: tuple[Obstacle, ...]
    lock: LockFile = LockFile.NONE
    unseen: int = 0

    @property
    def clearable(self) -> tuple[Obstacle, ...]:
        """Obstacles that may be stopped with the operator's consent, which are all except live attempts."""
        return tuple(each for each in self.obstacles if each.owner is not Owner.IRIS)


def find_obstacles(session: Session, name: str) -> WorkerObstacles:
    """Return the obstacles on a worker without changing anything. Raises UnreachableError, NotFoundError."""
    cluster = session.view()
    worker = find_worker(cluster, name).id
    return _obstacles(cluster, _stop_and_report(session, cluster, worker))


def clear(session: Session, found: WorkerObstacles, *, grace: float = GRACE) -> WorkerObstacles:
    """Stop the obstacles, wait until they are gone, and probe the worker. Return the remaining obstacles.

    Attempts that are live now are excluded. The stops are recorded before they are sent.
    """
    with session.transaction() as draft:
        worker = find_worker(draft.cluster, found.worker).id
        live = _live_tokens(draft.cluster)
        to_stop = {each.key: each for each in found.clearable if (each.holder or each).token not in live}
        if to_stop:
            holders = [each.holder for each in to_stop.values() if each.holder is not None]
            processes = tuple(f"{each.pid}: {each.command[:_MAX_COMMAND]}" for each in holders)
            attempts = tuple(each.token for each in to_stop.values() if not each.holder and each.token)
            draft.record(WorkerUnwedged(worker=worker, processes=processes, attempts=attempts))
    targets = tuple(each.target for each in to_stop.values())
    report = _stop_and_report(session, session.cluster, worker, targets, grace)
    deadline = session.clock.monotonic() + grace + _EXTRA_WAIT
    while True:
        present = _obstacles(session.cluster, report)
        remaining = tuple(each for each in present.clearable if each.key in to_stop)
        if not remaining or session.clock.monotonic() >= deadline:
            break
        session.clock.sleep(_PAUSE)
        report = _stop_and_report(session, session.view(), worker)
    workers.probe(session, [worker])
    return WorkerObstacles(worker=worker, obstacles=remaining, lock=present.lock, unseen=present.unseen)


def _stop_and_report(
    session: Session,
    cluster: Cluster,
    worker_id: WorkerId,
    targets: tuple[ChipHolder | Token, ...] = (),
    grace: float = GRACE,
) -> UnwedgeReport:
    """Stop the processes and attempts in `targets`, then return the worker's report. Raises IrisError."""
    worker = find_worker(cluster, worker_id)
    known = [
        attempt.token
        for task in cluster.tasks.values()
        for attempt in task.attempts
        if attempt.worker == worker_id and not attempt.live
    ]
    keep = [attempt.token for _, attempt in cluster.live_attempts_on(worker_id)]
    keep.append(set_up_token(worker.id, worker.incarnation))  # the VM's set-up, which is not an attempt
    report = session.runner.unwedge(
        session.target(worker), keep=keep, known=known, clear=targets, grace=grace
    )
    if isinstance(report, Silence):
        raise UnreachableError(
            report.words(worker_id),
            hint=report.hint or f"iris worker probe {worker_id}",
        )
    if worker.incarnation and (report.boot_id, report.incarnation) != (worker.boot_id, worker.incarnation):
        raise IrisError(
            f"{worker_id} was rebooted or re-created: its state in the log is outdated",
            hint=f"iris worker probe {worker_id}",
        )
    return report


def _obstacles(cluster: Cluster, report: UnwedgeReport) -> WorkerObstacles:
    by_token = {
        attempt.token: AttemptId(task.id, attempt.number)
        for task in cluster.tasks.values()
        for attempt in task.attempts
    }
    live = _live_tokens(cluster)

    def owner(token: Token | None) -> Owner:
        if token is None:
            return Owner.OTHER
        if token in live:
            return Owner.IRIS
        return Owner.ENDED if token in by_token else Owner.UNKNOWN

    holders = (
        Obstacle(owner=owner(each.token), holder=each, attempt=by_token.get(each.token or Token("")))
        for each in report.holders
    )
    directories = (
        Obstacle(
            owner=owner(each.token), token=each.token, attempt=by_token.get(each.token), state=each.state
        )
        for each in report.attempts
    )
    obstacles = (*holders, *directories)
    return WorkerObstacles(worker=report.worker, obstacles=obstacles, lock=report.lock, unseen=report.unseen)


def _live_tokens(cluster: Cluster) -> frozenset[Token]:
    """Return the tokens of all live attempts on all workers, because two workers may be the same host by mistake."""
    return frozenset(attempt.token for _, attempt in cluster.live_attempts())
