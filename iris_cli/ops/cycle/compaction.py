"""Keeping the log short: by the operator's word, or by itself when it has grown large."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from iris_cli.core.units import format_memory
from iris_cli.errors import IrisError, LockedError
from iris_cli.journal.layout import LOG
from iris_cli.journal.log.compact import Compacted
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.session import Session

LARGE = 64 << 20
"""Bytes of a log that a cycle compacts when it has done its work."""


def compact(state: StateDir, command: str, timeout: float) -> tuple[Compacted | None, tuple[str, ...]]:
    """Move the log to the archive. Returns None if there was nothing to move, and messages. Raises IrisError."""
    seen = state.load()  # most of it is read before anybody has to wait for us
    if seen.committed and seen.cluster is not None:
        state.keep(seen.cluster, always=True)  # so that nobody needs to read the archive for it
    return state.compact(command, timeout, after_seq=seen.seq)


def size_of_log(directory: Path) -> int:
    """In bytes; 0 if there is none."""
    with suppress(OSError):
        return os.stat(directory / LOG).st_size
    return 0


def when_large(session: Session, limit: int | None = None) -> Compacted | None:
    """Compact a log of more than `limit` (by default LARGE) bytes. What keeps it from that is told, and no error."""
    if size_of_log(session.state.path) <= (LARGE if limit is None else limit):
        return None
    session.state.keep(session.cluster, always=True)  # so that nobody needs to read the archive for it
    try:
        done, messages = session.state.compact(session.command, 0.0, after_seq=session.cluster.seq)
    except LockedError:
        return None  # whoever holds the lock is at work; the next cycle will find it free
    except IrisError as error:
        session.tell(f"the log was not compacted: {error.message}")
        return None
    for message in messages:
        session.tell(message)
    return done


def words(done: Compacted) -> str:
    """Return the size of the log before it was compacted, and the segment that has its lines now."""
    return f"compacted the log: {format_memory(done.bytes_before)} moved to {done.segment.file}"
