"""The lock of the state directory, for one writer at a time. The kernel releases it when the writer's process ends.

The file is never deleted, and the lock never expires.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import lock_descriptor, unlock_descriptor
from msgspec import Struct

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.errors import LockedError, NotWritableError
from iris_cli.journal.durable import is_in_place, not_writable, opened
from iris_cli.journal.holder import LockHolder, is_stopped, read_holder, recorded_holder
from iris_cli.journal.layout import LOCK

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


class StateLock:
    """The lock of a directory. Threads exclude each other like processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / LOCK

    @contextmanager
    def hold(self, holder: LockHolder, timeout: float) -> Iterator[HeldLock]:
        """Wait up to `timeout` seconds for the lock, and hold it. Raises LockedError and NotWritableError."""
        deadline = SYSTEM_CLOCK.monotonic() + timeout
        while True:
            with ExitStack() as stack:
                try:  # reopen the file for each attempt, because it may have been replaced
                    fd = stack.enter_context(opened(self._path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK))
                    is_locked = lock_descriptor(fd, blocking=False)
                except OSError as error:
                    if error.errno in _NO_LOCKS:
                        raise _no_locks_error(self._directory) from error
                    raise not_writable(self._path, error) from error
                if is_locked:
                    # Unlock explicitly, because a process that was just forked may have the descriptor.
                    stack.callback(unlock_descriptor, fd)
                    with recorded_holder(self._directory, holder):
                        yield HeldLock(self._path, fd)
                    return
            if SYSTEM_CLOCK.monotonic() >= deadline:
                raise _locked_error(self._directory, holder)
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
