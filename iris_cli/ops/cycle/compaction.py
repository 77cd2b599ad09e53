"""Compaction of the event log: on request, or automatically when it is large."""

import os
from contextlib import suppress
from pathlib import Path

from iris_cli.core.units import format_memory
from iris_cli.errors import IrisError, LockedError
from iris_cli.journal.layout import LOG
from iris_cli.journal.log.archive import Compacted
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.session import Session

LARGE_LOG = 64 << 20  # size in bytes above which a cycle compacts the log


def compact(state: StateDir, command: str, timeout: float) -> tuple[Compacted | None, tuple[str, ...]]:
    """Move the log to the archive. Return the result (None if nothing was moved) and messages. Raises IrisError."""
    loaded = state.load()  # read most of the log before taking the lock
    if loaded.committed and loaded.cluster is not None:
        state.save_snapshot(loaded.cluster, always=True)  # with a snapshot, readers need no archive
    return state.compact(command, timeout, after_seq=loaded.seq)


def size_of_log(directory: Path) -> int:
    """Return the size of the log in bytes; 0 if no log exists."""
    with suppress(OSError):
        return os.stat(directory / LOG).st_size
    return 0


def compact_if_large(session: Session, limit: int | None = None) -> Compacted | None:
    """Compact a log of more than `limit` bytes (default: LARGE_LOG). Print a failure instead of raising it."""
    if size_of_log(session.state.path) <= (LARGE_LOG if limit is None else limit):
        return None
    session.state.save_snapshot(session.cluster, always=True)  # with a snapshot, readers need no archive
    try:
        result, messages = session.state.compact(session.command, 0.0, after_seq=session.cluster.seq)
    except LockedError:
        return None  # another invocation holds the lock; a later cycle tries again
    except IrisError as error:
        session.tell(f"the log was not compacted: {error.message}")
        return None
    for message in messages:
        session.tell(message)
    return result


def compaction_words(result: Compacted) -> str:
    """Return a message with the previous size of the log and the archive segment that holds its lines."""
    return f"compacted the log: {format_memory(result.bytes_before)} moved to {result.segment.file}"
