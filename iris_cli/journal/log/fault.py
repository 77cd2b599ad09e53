"""Why a log can't be read further, and where that is."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from iris_cli.journal.layout import LOG
from iris_cli.journal.log.position import Position


class FaultKind(StrEnum):
    TORN = "torn"  # unfinished or damaged, and nothing valid behind it: it may never have happened
    DAMAGED = "damaged"
    EDITED = "edited"  # good, but another program changed the line ends or put a byte order mark before it
    NEWER = "newer"  # good, but written by a newer program
    FOREIGN = "foreign"  # good, but HEAD is that of another log
    LOST = "lost"  # HEAD names a line that isn't there, or is another one
    HEAD = "head"  # good, but HEAD contradicts itself
    MISSING = "missing"  # the archive lacks what went before this line


class Fault(Struct, frozen=True, kw_only=True):
    """Why a log could not be read further.

    `seq` is the sequence number expected at this line; lines count from 1. `file` is relative to the state
    directory.
    """

    kind: FaultKind
    line: int
    offset: int
    seq: int
    what: str
    file: str = LOG

    def __str__(self) -> str:
        return f"line {self.line} (byte {self.offset}, seq {self.seq}): {self.what}"


def fault_at(end: Position, file: str, what: str) -> Fault:
    """Damage right behind `end`."""
    return Fault(
        kind=FaultKind.DAMAGED, line=end.line + 1, offset=end.offset, seq=end.seq + 1, what=what, file=file
    )
