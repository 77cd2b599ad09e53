"""The holder of the state directory's lock, recorded in `lock.json` for messages only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.journal.codec import decode, encode
from iris_cli.journal.durable import open_safely, opened
from iris_cli.journal.layout import HOLDER

_LIMIT = 4096  # bytes
_SIZE = 512  # bytes: minimum size of the file


class Holder(Struct, frozen=True, kw_only=True):
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


class recorded_holder:  # noqa: N801  # like `opened`
    """Context manager that records the lock's holder. Errors are ignored."""

    __slots__ = ("_fd",)

    def __init__(self, directory: Path, holder: Holder) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = open_safely(f"{directory}/{HOLDER}", os.O_WRONLY | os.O_CREAT)
            _write(self._fd, encode(holder) + b"\n")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_raised: object) -> None:
        if self._fd < 0:
            return
        with suppress(OSError):
            _write(self._fd, b"")
        with suppress(OSError):
            os.close(self._fd)


def read_holder(directory: Path, host: str) -> Holder | None:
    """Return the recorded holder; None if none is recorded, or if it is a dead process on `host`."""
    try:
        with opened(directory / HOLDER, os.O_RDONLY) as fd:
            holder = decode(Holder, os.read(fd, _LIMIT))
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
    """Overwrite the file in place, because truncating it would double the work of the next fsync."""
    data = data.ljust(_SIZE)
    os.pwrite(fd, data, 0)
    if os.fstat(fd).st_size > len(data):
        os.ftruncate(fd, len(data))
