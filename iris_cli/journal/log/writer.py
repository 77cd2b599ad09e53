"""The lock of the state directory, for one writer at a time, and the log while this process holds the lock.

The kernel releases the lock when the writer's process ends. The lock's file is never deleted, and the lock never
expires.
"""

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import lock_descriptor, unlock_descriptor
from msgspec import Struct

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.events.events import Event, Transaction
from iris_cli.errors import LockedError, NotWritableError
from iris_cli.files import is_in_place, not_writable, opened
from iris_cli.journal.access import LockHolder, is_stopped, read_holder, recorded_holder
from iris_cli.journal.layout import LOCK
from iris_cli.journal.log.archive import Compacted
from iris_cli.journal.log.file_store import FileStore, Loaded
from iris_cli.journal.log.record import FORMAT, Conflict

_POLL_INTERVAL = 0.002  # seconds; one attempt to take the lock costs microseconds
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class HeldLock(Struct):
    """The lock while this process holds it: the path and the descriptor of the lock's file."""

    _path: Path
    _fd: int

    def check(self) -> None:
        """Raise LockedError if the lock's file was deleted or replaced, because another process may hold a new lock."""
        if not is_in_place(self._fd, self._path):
            raise LockedError(
                f"{self._path} was deleted or replaced while locked: another command may be writing",
                hint="nothing was written; run the command again, and do not delete that file",
            )

    def check_exclusive(self) -> None:
        """Raise NotWritableError if the file system grants the lock twice."""
        with opened(self._path, os.O_RDWR) as another:
            try:
                fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
        raise _no_locks_error(self._path.parent)


@contextmanager
def hold_lock(directory: Path, holder: LockHolder, timeout: float) -> Iterator[HeldLock]:
    """Wait up to `timeout` seconds for the lock, and hold it. Threads exclude each other like processes.

    Raises LockedError and NotWritableError.
    """
    path, deadline = directory / LOCK, SYSTEM_CLOCK.monotonic() + timeout
    while True:
        with ExitStack() as stack:
            try:  # reopen the file for each attempt, because it may have been replaced
                fd = stack.enter_context(opened(path, os.O_RDWR | os.O_CREAT))
                is_locked = lock_descriptor(fd, blocking=False)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    raise _no_locks_error(directory) from error
                raise not_writable(path, error) from error
            if is_locked:
                # Unlock explicitly, because a process that was just forked may have the descriptor.
                stack.callback(unlock_descriptor, fd)
                with recorded_holder(directory, holder):
                    yield HeldLock(path, fd)
                return
        if SYSTEM_CLOCK.monotonic() >= deadline:
            raise _locked_error(directory, holder)
        SYSTEM_CLOCK.sleep(_POLL_INTERVAL)


def _locked_error(directory: Path, waiter: LockHolder) -> LockedError:
    holder = read_holder(directory, waiter.host)
    if holder is not None and holder.host == waiter.host and is_stopped(holder.pid):
        return LockedError(
            f"{directory} is locked by {holder}, which is stopped", hint=f"to resume: kill -CONT {holder.pid}"
        )
    return LockedError(
        f"{directory} is locked by {holder or 'another command'}",
        hint="wait, or raise --lock-timeout; the lock ends with that process",
    )


def _no_locks_error(directory: Path) -> NotWritableError:
    return NotWritableError(
        f"the file system of {directory} does not support locks",
        hint="use a directory on a local disk with --state-dir",
    )


class Writer:
    """The log while its lock is held.

    `transactions` are the transactions after the requested `after_seq`. `messages` report repairs and warnings.
    """

    def __init__(
        self, store: FileStore, lock: HeldLock, loaded: Loaded, messages: tuple[str, ...], actor: str
    ) -> None:
        self.transactions: tuple[Transaction, ...] = loaded.records
        self.header = loaded.end.header
        self.messages = messages
        self.seq = loaded.end.seq
        self._store = store
        self._lock: HeldLock | None = lock
        self._actor = actor

    def append(self, events: Sequence[Event], *, at: float) -> Transaction:
        """Commit events together at time `at`. On return they are durable, and only then may the caller act on them.

        Raises NotWritableError or LockedError if nothing was committed, ValueError for events that can't be stored.
        """
        if self._lock is None:
            raise ValueError("the lock was released before this append")
        self._lock.check()
        at = round(at, 3)
        if self.header is not None and self.header.format < FORMAT:
            self._begin_file(self._lock, at)
        result = self._store.append(self.seq, events, at=at, actor=self._actor)
        if isinstance(result, Conflict):
            raise NotWritableError(
                f"the event log grew to seq {result.seq} despite the lock", hint="run the command again"
            )
        self.seq = result
        return Transaction(seq=result, at=at, actor=self._actor, events=tuple(events))

    def compact(self, *, at: float) -> Compacted | None:
        """Move the lines of the log to the archive at time `at`. Return None if the log has only the header.

        Raises NotWritableError, LockedError and LogDamagedError; nothing is lost then.
        """
        if self._lock is None:
            raise ValueError("the lock was released before this compaction")
        self._lock.check()
        if self._store.end.line <= 1:
            return None
        return self._begin_file(self._lock, round(at, 3))

    def _begin_file(self, lock: HeldLock, at: float) -> Compacted:
        done = self._store.compact(lock.check, at=at, actor=self._actor)
        self.seq, self.header = done.end.seq, done.end.header
        return done

    def close(self) -> None:
        """Reject further appends, because the lock will be released."""
        self._lock = None
