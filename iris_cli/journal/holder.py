"""Who holds the lock of the state directory, as `lock.json` tells: for messages, never for a decision."""

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
_SIZE = 512  # bytes: of the file, whatever it says, if that is not more


class Holder(Struct, frozen=True, kw_only=True):
    """`actor` is `user@host`, `since` a UTC time as text."""

    pid: int
    actor: str
    command: str
    since: str

    @property
    def host(self) -> str:
        return self.actor.rpartition("@")[2]

    def __str__(self) -> str:
        return f"{clip(self.command)!r} (pid {self.pid}, {clip(self.actor)}) since {clip(self.since)}"


class signed_by:  # noqa: N801  # as `opened`
    """Tell who holds the lock, for as long as it is held. That it can't be told keeps nobody from working."""

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
    """Who holds the lock; None if nobody says so. What a process left that died here, on `host`, is stale."""
    try:
        with opened(directory / HOLDER, os.O_RDONLY) as fd:
            holder = decode(Holder, os.read(fd, _LIMIT))
        stale = holder.host == host and _is_dead(holder.pid)
        return None if stale else holder
    except (OSError, ValueError, OverflowError):
        return None


def is_stopped(pid: int) -> bool:
    """True if the process of this machine is stopped by a signal such as Ctrl-Z; False if that is not known."""
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
    """Over what stood there: a file that is cut off and written anew doubles what the next fsync has to do."""
    data = data.ljust(_SIZE)
    os.pwrite(fd, data, 0)
    if os.fstat(fd).st_size > len(data):
        os.ftruncate(fd, len(data))
