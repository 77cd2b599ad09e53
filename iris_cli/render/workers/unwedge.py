"""What holds up a worker, thing by thing."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core.ids import AttemptId, Token, WorkerId
from iris_cli.core.messages.observations import LockFile, RemoteState
from iris_cli.ops.workers.unwedge import Obstacle, Owner, Wedge
from iris_cli.render.console import Output

_WHOSE = {
    Owner.IRIS: "iris's own, not touched",
    Owner.ENDED: "left of an attempt that has ended",
    Owner.UNKNOWN: "an attempt that the log never saw",
    Owner.OTHER: "not started by iris",
}
_LOCK = {
    LockFile.STALE: "a stale lock file of the TPU library is there; the next start removes it",
    LockFile.FOREIGN: "the lock file of the TPU library is another user's, or no plain file: remove it by hand",
}


class ObstacleEntry(Struct, frozen=True, kw_only=True):
    """A process that holds chips, or the directory of an attempt, which has a `state` and no `pid`."""

    owner: Owner
    attempt: AttemptId | None
    pid: int | UnsetType = UNSET
    devices: Sequence[str] | UnsetType = UNSET
    command: str | UnsetType = UNSET
    token: Token | None
    state: RemoteState | UnsetType | None = UNSET


class WedgeDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris worker unwedge`. `left` is null if nothing was to be stopped.

    `unseen` counts processes of other users that could not be examined.
    """

    worker: WorkerId
    found: Sequence[ObstacleEntry]
    lock_file: LockFile
    unseen: int
    left: Sequence[ObstacleEntry] | None


def show(output: Output, wedge: Wedge) -> None:
    """What was found, one line each."""
    for each in wedge.obstacles:
        output.line(_words(each))
    if not wedge.obstacles:
        output.message(f"{wedge.worker}: nothing is in the way")
    if wedge.lock in _LOCK:
        output.message(f"{wedge.worker}: {_LOCK[wedge.lock]}")
    if wedge.unseen:
        output.message(f"{wedge.worker}: {wedge.unseen} of other users' processes could not be looked into")


def show_cleared(output: Output, found: Wedge, left: Wedge) -> None:
    """What became of it."""
    gone = len(found.clearable) - len(left.obstacles)
    output.message(f"{found.worker}: {gone} of {len(found.clearable)} stopped")
    for each in left.obstacles:
        output.failed(f"still running: {_words(each)}")


def document(found: Wedge, left: Wedge | None) -> WedgeDocument:
    """The same as JSON; `left` is None where nothing was to be stopped."""
    return WedgeDocument(
        worker=found.worker,
        found=[_obstacle(each) for each in found.obstacles],
        lock_file=found.lock,
        unseen=found.unseen,
        left=None if left is None else [_obstacle(each) for each in left.obstacles],
    )


def _words(obstacle: Obstacle) -> str:
    whose = _WHOSE[obstacle.owner] + (f" ({obstacle.attempt})" if obstacle.attempt else "")
    holder = obstacle.holder
    if holder is not None:
        holds = (
            f"holds {', '.join(holder.devices)}" if holder.devices else "holds nothing any more, but lives"
        )
        return f"process {holder.pid} {holds}: {whose}: {holder.command}"
    return f"attempt {obstacle.token} is {obstacle.state}: {whose}"


def _obstacle(each: Obstacle) -> ObstacleEntry:
    holder = each.holder
    if holder is None:
        return ObstacleEntry(owner=each.owner, attempt=each.attempt, token=each.token, state=each.state)
    return ObstacleEntry(
        owner=each.owner,
        attempt=each.attempt,
        pid=holder.pid,
        devices=holder.devices,
        command=holder.command,
        token=holder.token,
    )
