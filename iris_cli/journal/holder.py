"""The process that holds the lock of the state directory, recorded in `lock.json` for messages only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.journal.codec import decode, encode
from iris_cli.journal.durable import opened
from iris_cli.journal.layout import HOLDER

_LIMIT = 4096  # bytes
_SIZE = 512  # minimum size of the file in bytes


class LockHolder(Struct, frozen=True, kw_only=True):
    """A process that holds the lock. `actor` is `user@host`, `since` a UTC time as text."""

    pid: int
    actor: str
    command: str
    since: str

    @property
    def host(self) -> str:
        return self.actor.rpartition("@")[2]

    def __str__(self) -> str:
        return f"{clip(self.command)!r} (pid {self.pid}, {clip(self.actor)}) since {clip(self.since)}"


@contextmanager
def recorded_holder(directory: Path, holder: LockHolder) -> Iterator[None]:
    """Record the lock's holder during the block. Errors are ignored."""
    with ExitStack() as stack:
        with suppress(OSError):
            fd = stack.enter_context(opened(f"{directory}/{HOLDER}", os.O_WRONLY | os.O_CREAT))
            _write(fd, encode(holder) + b"\n")
            stack.callback(_write, fd, b"")
        yield


def read_holder(directory: Path, host: str) -> LockHolder | None:
    """Return the recorded holder; None if none is recorded, or if it is a dead process on `host`."""
    try:
        with opened(directory / HOLDER, os.O_RDONLY) as fd:
            holder = decode(LockHolder, os.read(fd, _LIMIT))
        stale = holder.host == host and _is_dead(holder.pid)
        return None if stale else holder
    except (OSError, ValueError, OverflowError):
        return None


def is_stopped(pid: int) -> bool:
    """Return whether the local process is stopped by a signal such as Ctrl-Z; False if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as status:
            return status.read().rpartition(") ")[2].startswith("T")
    except OSError:
        return False


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _write(fd: int, data: bytes) -> None:
    """Overwrite the file in place, because truncating it would double the work of the next fsync. Ignore errors."""
    data = data.ljust(_SIZE)
    with suppress(OSError):
        os.pwrite(fd, data, 0)
        if os.fstat(fd).st_size > len(data):
            os.ftruncate(fd, len(data))
