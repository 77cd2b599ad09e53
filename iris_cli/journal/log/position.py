"""How far a log was read, and the checksum that its lines end in: all that is needed where it has nothing new."""

from __future__ import annotations

from enum import StrEnum
from zlib import crc32

from msgspec import Struct

from iris_cli import __version__
from iris_cli.journal.layout import LOG

PROGRAM = f"iris {__version__}"
NO_PREVIOUS = "00000000"
"""`prev` of the first line."""

_MARK = b',"crc":"'
TAIL = len(_MARK) + len('9a27e113"}')
"""Bytes that the checksum takes at the end of a line."""


class Header(Struct, frozen=True, kw_only=True):
    """What the first line of a file says of the log. `cluster_id` is random and tells one log from all others."""

    format: int
    cluster_id: str
    program: str
    cluster_name: str


class Position(Struct, frozen=True, kw_only=True):
    """The end of a good record: how far a log was read, and all that is needed to go on from there.

    `line` and `offset` count lines and bytes up to here; `seq`, `crc` and `at` are those of the record. `earliest` is
    the smallest time of the records behind the last snapshot in the archive.
    """

    line: int = 0
    offset: int = 0
    seq: int = 0
    crc: str = NO_PREVIOUS
    at: float = 0.0
    earliest: float | None = None
    program: str = ""
    header: Header | None = None


START = Position()


def sealed(body: bytes) -> bytes:
    """The line of a JSON object, whose last brace is cut off, with its checksum."""
    return b'%s%s%08x"}\n' % (body, _MARK, crc32(body))


def unsealed(line: bytes) -> bytes:
    """The JSON object in a line that `sealed` made."""
    return line.rstrip(b"\n")[:-TAIL] + b"}"


def is_intact(line: bytes) -> bool:
    """Whether the line, without its newline, ends in its own checksum."""
    return line[-TAIL:-10] == _MARK and line[-2:] == b'"}' and b"%08x" % crc32(line[:-TAIL]) == line[-10:-2]


# Why a log can't be read further, and where that is.


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
