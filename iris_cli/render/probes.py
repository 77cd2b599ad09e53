"""Print results of probes, and the obstacles on a worker: processes and files that block its chips."""

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core import AttemptId, Token, WorkerCondition, WorkerId, format_cores, format_memory
from iris_cli.core.messages.observations import LockFile, RemoteState, Silence, SilenceKind
from iris_cli.ops.workers.unwedge import Obstacle, Owner, WorkerObstacles
from iris_cli.ops.workers.workers import HostKey, ProbeResult
from iris_cli.render.console import Output
from iris_cli.render.tables import fold

_OWNER_WORDS = {
    Owner.IRIS: "its attempt is live; unwedge does not stop it",
    Owner.ENDED: "its attempt has ended",
    Owner.UNKNOWN: "its attempt is not in the log",
    Owner.OTHER: "not started by iris",
}
_ATTEMPT_WORDS = {
    Owner.IRIS: ": it is live and is not stopped",
    Owner.ENDED: " on the worker, but has ended according to the log",
    Owner.UNKNOWN: " on the worker, but is not in the log",
}
_LOCK_WORDS = {
    LockFile.STALE: "stale lock file of libtpu; the next start removes it",
    LockFile.FOREIGN: "the lock file of libtpu belongs to another user or is not a regular file: remove it by hand",
}


class ProbedWorker(Struct, frozen=True, kw_only=True):
    """One worker. If it did not answer, `kind`, `detail` and `hint` are set; otherwise `usable` and later fields."""

    worker: WorkerId
    condition: WorkerCondition
    reason: str
    answered: bool
    kind: SilenceKind | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    usable: bool | UnsetType = UNSET
    cpu: float | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    chips: int | UnsetType = UNSET
    gpus: int | UnsetType = UNSET
    warnings: Sequence[str] | UnsetType = UNSET


class ProbesDocument(Struct, frozen=True):
    """The result of `iris worker probe`."""

    workers: Sequence[ProbedWorker]


def show_probes(output: Output, results: Sequence[ProbeResult]) -> None:
    """Print a line for each distinct result with its workers, and the hints and warnings of the results."""
    if output.as_json:
        output.document(ProbesDocument([_probed_worker(each) for each in results]))
        return
    alike: dict[tuple[str, str, tuple[str, ...]], list[ProbeResult]] = {}
    for each in results:
        hint, warnings = (each.seen.hint, ()) if isinstance(each.seen, Silence) else ("", each.seen.warnings)
        alike.setdefault((_probe_words(each), hint, warnings), []).append(each)
    if not results:
        output.message("no workers yet: iris doctor checks the hosts in cluster.yaml")
    for (words, hint, warnings), same in alike.items():
        workers = fold(each.worker.id for each in same)
        print_line = output.failed if isinstance(same[0].seen, Silence) else output.done
        print_line(f"{workers}: {words}")
        if hint:
            output.message(f"hint: {hint}")
        for warning in warnings:
            output.message(f"{workers}: {warning}")


def host_key_lines(presented: Sequence[HostKey]) -> list[str]:
    """Return a line for each worker with its host key, in aligned columns. Workers without an answer are omitted."""
    known = [(each.worker, each.key) for each in presented if not isinstance(each.key, Silence)]
    longest = max((len(worker.id) for worker, _ in known), default=0)
    longest_host = max((len(worker.connection.host) for worker, _ in known), default=0)
    return [
        f"{worker.id:<{longest}}  {worker.connection.host:<{longest_host}}  {key.type} {key.fingerprint}"
        for worker, key in known
    ]


def identity_lines(host: ProbeResult) -> list[str]:
    """Return lines that compare boot id and incarnation with the log and name the attempts that would end."""
    worker, seen = host.worker, host.seen
    if isinstance(seen, Silence):
        return [f"{worker.id} can't be identified ({seen.problem})"]
    lines = [
        _compare("boot id", seen.boot_id, worker.boot_id, f"{worker.id} was rebooted"),
        _compare("incarnation", seen.incarnation, worker.incarnation, "new machine or new iris directory"),
    ]
    if host.ended_attempts:
        lines.append(
            f"if you accept, these attempts count as ended: {', '.join(map(str, host.ended_attempts))}"
        )
    return lines


def _compare(label: str, shown: str, recorded: str, meaning: str) -> str:
    if shown == recorded:
        return f"{label} {shown}, as recorded"
    return f"{label} {shown} (recorded: {recorded or 'none'})" + (f": {meaning}" if recorded else "")


def _probe_words(probed: ProbeResult) -> str:
    worker, seen = probed.worker, probed.seen
    if isinstance(seen, Silence):
        return f"{worker.condition.value} ({seen.problem})"
    state = f"{worker.condition.value}: {worker.reason}" if worker.reason else worker.condition.value
    if worker.quarantined:
        state = f"quarantined: {worker.quarantine_reason}"
    if worker.unschedulable:
        state = f"can't be used: {worker.reason}"
    chips = f", {worker.chips} chips" if worker.chips else ""
    return f"{state} ({format_cores(worker.cpu)}, {format_memory(worker.memory)} of memory{chips})"


def _probed_worker(probed: ProbeResult) -> ProbedWorker:
    worker, seen = probed.worker, probed.seen
    new = partial(ProbedWorker, worker=worker.id, condition=worker.condition, reason=worker.reason)
    if isinstance(seen, Silence):
        return new(answered=False, kind=seen.kind, detail=seen.detail, hint=seen.hint)
    return new(
        answered=True,
        usable=not worker.unschedulable,
        cpu=worker.cpu,
        memory=worker.memory,
        chips=worker.chips,
        gpus=worker.gpus,
        warnings=seen.warnings,
    )


class ObstacleEntry(Struct, frozen=True, kw_only=True):
    """A process that holds chips, or an attempt's directory on the worker. Only a directory has a `state`."""

    owner: Owner
    attempt: AttemptId | None
    pid: int | UnsetType = UNSET
    devices: Sequence[str] | UnsetType = UNSET
    command: str | UnsetType = UNSET
    token: Token | None
    state: RemoteState | UnsetType | None = UNSET


class WedgeDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris worker unwedge`. `left`: entries that still block the chips; null if nothing was stopped.

    `unseen`: number of processes of other users that could not be inspected.
    """

    worker: WorkerId
    found: Sequence[ObstacleEntry]
    lock_file: LockFile
    unseen: int
    left: Sequence[ObstacleEntry] | None


def show_wedge(output: Output, wedge: WorkerObstacles) -> None:
    """Print a line for each process or attempt that blocks the chips, and for a lock file."""
    for each in wedge.obstacles:
        output.line(_words(each))
    if not wedge.obstacles:
        output.message(f"{wedge.worker}: nothing holds the chips")
    if wedge.lock in _LOCK_WORDS:
        output.message(f"{wedge.worker}: {_LOCK_WORDS[wedge.lock]}")
    if wedge.unseen:
        output.message(f"{wedge.worker}: {wedge.unseen} processes of other users could not be inspected")


def stop_question(wedge: WorkerObstacles) -> str:
    """Return the question whether to stop the obstacles that can be stopped."""
    kept = len(wedge.obstacles) - len(wedge.clearable)
    return f"Stop {_count_words(wedge.clearable)}{f' ({kept} live, not stopped)' if kept else ''}?"


def show_cleared(output: Output, found: WorkerObstacles, left: WorkerObstacles) -> None:
    """Print the number of stopped obstacles, and the obstacles that still run."""
    output.message(f"{found.worker}: stopped {_count_words(found.clearable, left.obstacles)}")
    for each in left.obstacles:
        output.failed(f"still running: {_words(each)}")
    if left.obstacles:
        output.message(f"hint: try again, or reboot {found.worker}")


def _count_words(found: Sequence[Obstacle], left: Sequence[Obstacle] = ()) -> str:
    """Return `1 process and 2 attempts`; if some are `left`, `0 of 1 process and 2 of 2 attempts`."""
    parts = []
    for is_process, one, many in ((True, "process", "processes"), (False, "attempt", "attempts")):
        total, still = (
            sum((each.holder is not None) is is_process for each in some) for some in (found, left)
        )
        if total:
            stopped = f"{total - still} of " if left else ""
            parts.append(f"{stopped}{total} {one if total == 1 else many}")
    return " and ".join(parts)


def wedge_document(found: WorkerObstacles, left: WorkerObstacles | None) -> WedgeDocument:
    """Return the document. `left`: the obstacles after the stop; None if nothing was stopped."""
    return WedgeDocument(
        worker=found.worker,
        found=[_obstacle(each) for each in found.obstacles],
        lock_file=found.lock,
        unseen=found.unseen,
        left=None if left is None else [_obstacle(each) for each in left.obstacles],
    )


def _words(obstacle: Obstacle) -> str:
    holder = obstacle.holder
    if holder is not None:
        whose = _OWNER_WORDS[obstacle.owner] + (f" ({obstacle.attempt})" if obstacle.attempt else "")
        holds = f"holds {', '.join(holder.devices)}" if holder.devices else "holds no device but still runs"
        return f"process {holder.pid} ({holder.command}) {holds}; {whose}"
    name = obstacle.attempt or f"the attempt with token {obstacle.token}"
    return f"{name} is {obstacle.state}{_ATTEMPT_WORDS[obstacle.owner]}"


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
