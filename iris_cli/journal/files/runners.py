"""Runners and clients, each with a locked file, the results of the last cycles, and the order to the background loop.

A runner is a process that runs cycles. A client is a process that shows an interactive job in its terminal. The kernel
releases the lock of a file when its process ends, so a locked file shows that its process is running. The content of
the file is used in messages only.

The heartbeat is one small file with the results and times of the last cycles, one for each kind of runner. Several
invocations may write it at the same time and must not lose each other's entries. So an invocation holds a separate
lock, for microseconds, while it reads and writes the file.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.files import PRIVATE_DIRECTORY, Disk, is_in_place, open_safely, opened, replace_file, try_lock
from iris_cli.journal.codec import decode, decode_record, encode
from iris_cli.journal.layout import CLIENTS, HEARTBEAT, HEARTBEAT_LOCK, LOOP_ORDER, RUNNERS
from iris_cli.randomness import SYSTEM_RANDOMNESS

LOOP = "loop"
"""The kind of the background loop. A state directory has at most one."""

KINDS = frozenset({LOOP, "watch", "wait", "command"})

_LIMIT = 4096  # bytes
_TRIES = 100  # maximum number of tries to take a lock, which other processes hold briefly to check it
_RETRY_INTERVAL = 0.005  # seconds
_MAX_HEARTBEAT = 1 << 16  # bytes
_HEARTBEAT_TRIES = 50  # maximum number of tries to take the lock of the heartbeat
_ENTRIES = "runners"  # the field of the heartbeat with an entry for each kind of runner


class Runner(Struct, frozen=True, kw_only=True):
    """A process that runs cycles. `interval` in seconds, `since` in seconds since the epoch, `actor` is `user@host`.

    `started` is the start time of the process, because a later process may have the same pid. "" and 0 mean unknown.
    """

    kind: str
    pid: Annotated[int, Meta(ge=0)] = 0  # not negative: os.kill would signal a process group
    actor: str = ""
    command: str = ""
    interval: Annotated[float, Meta(ge=0)] = 0.0
    since: Annotated[float, Meta(ge=0)] = 0.0
    started: str = ""

    @staticmethod
    def of_process(
        pid: int, kind: str, actor: str, command: str, *, interval: float, since: float
    ) -> "Runner":
        """Return the runner for a process of this machine."""
        return Runner(
            kind=kind,
            pid=pid,
            actor=actor,
            command=command,
            interval=interval,
            since=since,
            started=_started(pid),
        )

    @property
    def host(self) -> str:
        return self.actor.rpartition("@")[2]

    def is_process(self, pid: int) -> bool:
        return bool(pid) and pid == self.pid and self.started == _started(pid)

    def entry(self) -> dict[str, Any]:
        """Return the fields for JSON, without the kind, because the file's name contains the kind."""
        return {name: value for name, value in asdict(self).items() if name != "kind"}


class RunnerLock(Struct):
    """The lock on the file of a runner or client, held by this process."""

    _path: Path
    descriptor: int

    @property
    def name(self) -> str:
        return self._path.name

    def try_lock(self) -> bool:
        """Take the lock. Return False if another process has it. Raises OSError if the file system has no locks."""
        return try_lock(self.descriptor)

    def is_in_place(self) -> bool:
        """Return whether the locked file was neither deleted nor replaced."""
        return is_in_place(self.descriptor, self._path)

    def write(self, runner: Runner) -> None:
        """Write the runner's fields into the file. Errors, such as a full disk, are ignored."""
        data = json.dumps(runner.entry()).encode("ascii")[:_LIMIT]
        with suppress(OSError):
            os.pwrite(self.descriptor, data, 0)
            os.ftruncate(self.descriptor, len(data))

    def release(self) -> None:
        """Release the lock, and delete the file unless it is the loop's. Idempotent."""
        if self.descriptor < 0:
            return
        with suppress(OSError):
            if self._path.name != LOOP and self.is_in_place():
                self._path.unlink()
        # Closing is not enough, because a process that was just forked may have the descriptor.
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        self.hand_over()

    def hand_over(self) -> None:
        """Close the descriptor. The lock is released, unless a child process has inherited the descriptor."""
        # The number of a closed descriptor may be reused at once, so it must not be closed twice.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)


class Runners:
    """The runners of one state directory. `actor` is `user@host`."""

    def __init__(
        self, directory: Path, actor: str, *, sleep: Callable[[float], object] = SYSTEM_CLOCK.sleep
    ) -> None:
        self._directory = directory / RUNNERS
        self._actor = actor
        self._sleep = sleep

    def hold(self, kind: str, command: str, *, interval: float, since: float) -> RunnerLock | None:
        """Register this process as a runner. Return None if it is a second background loop. Raises OSError."""
        self._directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        self._clean()
        lock = self._hold_loop() if kind == LOOP else _hold_new_file(self._directory, f"{kind}-")
        if lock is not None:
            lock.write(self._runner(kind, command, interval, since))
        return lock

    def _hold_loop(self) -> RunnerLock | None:
        """Lock the loop's file. Wait for processes that only check the lock; return None if another loop holds it."""
        path = self._directory / LOOP
        lock = RunnerLock(path, open_safely(path, os.O_RDWR | os.O_CREAT))
        for _ in range(_TRIES):
            if lock.try_lock():
                return lock
            self._sleep(_RETRY_INTERVAL)
        lock.hand_over()
        return None

    def inherit(self, fd: int, command: str, *, interval: float, since: float) -> RunnerLock | None:
        """Take over the loop's lock with an inherited descriptor. Return None if `fd` does not hold that lock."""
        lock = RunnerLock(self._directory / LOOP, fd)
        try:
            # `try_lock` changes nothing if this process has inherited the lock.
            if not (lock.is_in_place() and lock.try_lock()):
                return None
            os.set_inheritable(fd, False)
        except OSError:
            return None
        lock.write(self._runner(LOOP, command, interval, since))
        return lock

    def live_runners(self) -> list[Runner]:
        """Return all live runners on any host, the loop first. Writes nothing."""
        found = [runner for path, runner in self._files() if runner is not None]
        return sorted(found, key=lambda each: (each.kind != LOOP, each.since, each.pid))

    @staticmethod
    @contextmanager
    def probing(path: Path) -> Iterator[bool]:
        """Yield whether the file's lock is free. During the block, no process can take it. Raises OSError."""
        with opened(path, os.O_RDONLY) as fd:
            yield try_lock(fd, shared=True)

    def _files(self) -> Iterator[tuple[Path, Runner | None]]:
        """Yield each file with its runner, or with None if the lock is free."""
        try:
            names = sorted(os.listdir(self._directory))
        except OSError:
            return
        for name in names:
            path = self._directory / name
            if name.partition("-")[0] not in KINDS:
                continue
            with suppress(OSError):
                if not stat.S_ISREG(os.lstat(path).st_mode):
                    continue
                with self.probing(path) as free:
                    runner = None if free else _read(path)
                yield path, runner

    def _clean(self) -> None:
        """Delete the files of killed runners."""
        for path, runner in list(self._files()):
            if runner is None and path.name != LOOP:
                with suppress(OSError):
                    path.unlink()

    def _runner(self, kind: str, command: str, interval: float, since: float) -> Runner:
        return Runner.of_process(os.getpid(), kind, self._actor, command, interval=interval, since=since)


def _hold_new_file(directory: Path, prefix: str = "") -> RunnerLock:
    """Create and lock a file with a unique name. Raises OSError."""
    for _ in range(_TRIES):
        path = directory / f"{prefix}{SYSTEM_RANDOMNESS.hexadecimal(8)}"
        lock = RunnerLock(path, open_safely(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        if lock.try_lock() and lock.is_in_place():
            return lock
        lock.hand_over()  # another process is checking the lock, or has deleted the file as stale
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _read(path: Path) -> Runner:
    """Return the runner that a file describes. If the file can't be read, only the kind is known."""
    kind = path.name.partition("-")[0]
    try:
        with opened(path, os.O_RDONLY) as fd:
            return decode_record(Runner, {**json.loads(os.read(fd, _LIMIT)), "kind": kind})
    except (OSError, ValueError, TypeError, RecursionError):
        return Runner(kind=kind)


def _started(pid: int) -> str:
    """Return the start time of a process in ticks since boot; "" if unknown."""
    with suppress(OSError, IndexError):
        text = Path("/proc", str(pid), "stat").read_text(errors="replace")
        return text.rpartition(") ")[2].split()[19]
    return ""


class LoopOrder(Struct, frozen=True, kw_only=True):
    """The operator's last order to the background loop. `stopped`: no loop may run.

    Each order to end the running loop changes `turn`, a random id. A loop ends when `turn` has changed since its start.
    `by` is the user and command that gave the order. `since` is the time of the order, as text.
    """

    turn: str = ""
    stopped: bool = False
    by: str = ""
    since: str = ""


def read_loop_order(directory: Path) -> LoopOrder:
    """Return the last order. If the file is missing or can't be read, return an order that allows a loop."""
    try:
        with opened(directory / LOOP_ORDER, os.O_RDONLY) as fd:
            return decode(LoopOrder, os.read(fd, _LIMIT))
    except (OSError, ValueError):
        return LoopOrder()


def write_loop_order(directory: Path, disk: Disk, order: LoopOrder) -> None:
    """Durably replace the order. Raises OSError."""
    data = encode(order) + b"\n"
    replace_file(disk, directory / LOOP_ORDER, data, alone=False, synced=True)


class Clients:
    """The clients of one state directory. When a client has ended, any cycle may cancel its job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / CLIENTS

    def hold(self) -> RunnerLock:
        """Register this process as a client, with a unique name, before its job is submitted. Raises OSError."""
        self._directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        self._clean()
        return _hold_new_file(self._directory)

    def is_gone(self, name: str) -> bool:
        """Return True if the client's lock is free or its file was deleted. Return False if the file can't be read."""
        try:
            with Runners.probing(self._directory / name) as free:
                return free
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _clean(self) -> None:
        """Delete the files of killed clients."""
        for path in self._directory.iterdir():
            if self.is_gone(path.name):
                with suppress(OSError):
                    path.unlink()


def write_heartbeat(
    directory: Path, disk: Disk, heartbeat: Mapping[str, object], runner: str, entry: Mapping[str, object]
) -> None:
    """Record the result `heartbeat` of a cycle. `entry` replaces the entry of this kind of runner. Raises OSError.

    If the lock can't be taken, the file is written without the lock. The next cycles restore lost entries.
    """
    with _heartbeat_locked(directory):
        runners = runners_of(read_heartbeat(directory)) | ({runner: dict(entry)} if runner else {})
        _replace_heartbeat(directory, disk, {**heartbeat, **({_ENTRIES: runners} if runners else {})})


def forget_runner(directory: Path, disk: Disk, runner: str) -> None:
    """Delete the entry of a kind of runner that no longer exists. Raises OSError."""
    if runner not in runners_of(read_heartbeat(directory)):
        return
    with _heartbeat_locked(directory):
        stored = read_heartbeat(directory) or {}
        others = {kind: entry for kind, entry in runners_of(stored).items() if kind != runner}
        _replace_heartbeat(directory, disk, {**stored, _ENTRIES: others})


def read_heartbeat(directory: Path) -> dict[str, Any] | None:
    """Return the content of the file; None if the file is missing or can't be read."""
    try:
        with opened(directory / HEARTBEAT, os.O_RDONLY) as fd:
            heartbeat = json.loads(os.read(fd, _MAX_HEARTBEAT))
    except (OSError, ValueError, RecursionError):
        return None
    return heartbeat if isinstance(heartbeat, dict) else None


def runners_of(heartbeat: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the last entry of each kind of runner; empty if the file has no entries."""
    kinds = (heartbeat or {}).get(_ENTRIES)
    if not isinstance(kinds, dict):
        return {}
    return {kind: entry for kind, entry in kinds.items() if isinstance(entry, dict)}


def _replace_heartbeat(directory: Path, disk: Disk, heartbeat: Mapping[str, object]) -> None:
    data = json.dumps(heartbeat).encode("ascii") + b"\n"
    replace_file(disk, directory / HEARTBEAT, data, alone=False)


@contextmanager
def _heartbeat_locked(directory: Path) -> Iterator[None]:
    fd = -1
    with suppress(OSError):
        fd = open_safely(directory / HEARTBEAT_LOCK, os.O_RDWR | os.O_CREAT)
        for _ in range(_HEARTBEAT_TRIES):
            if try_lock(fd):
                break
            SYSTEM_CLOCK.sleep(_RETRY_INTERVAL)
    try:
        yield
    finally:
        with suppress(OSError):
            os.close(fd)
