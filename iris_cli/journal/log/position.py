"""Positions in a log, the checksum at the end of each line, and faults of a log."""

from enum import StrEnum
from zlib import crc32

from msgspec import Struct

from iris_cli import __version__
from iris_cli.journal.layout import LOG

PROGRAM = f"iris {__version__}"
NO_PREVIOUS = "00000000"
"""`prev` of the first line."""

_CHECKSUM = b',"crc":"%08x"}'
TAIL = len(_CHECKSUM % 0)
"""Number of bytes of the checksum at the end of a line."""


class Header(Struct, frozen=True, kw_only=True):
    """The header in the first line of a file. `cluster_id` is random and identifies the log."""

    format: int
    cluster_id: str
    program: str
    cluster_name: str


class Position(Struct, frozen=True, kw_only=True):
    """The end of the last valid record that was read, with all data that is needed to continue after it.

    `line` and `offset` count lines and bytes up to this point. `seq`, `crc` and `at` are from the record. `earliest` is
    the smallest time of the records after the last archived snapshot.
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


def seal(body: bytes) -> bytes:
    """Return a line: a JSON object without its closing brace, and its checksum."""
    return body + _CHECKSUM % crc32(body) + b"\n"


def unseal(line: bytes) -> bytes:
    """Return the JSON object in a line that `seal` made."""
    return line.rstrip(b"\n")[:-TAIL] + b"}"


def is_intact(line: bytes) -> bool:
    """Return True if the line, without its newline, ends in the right checksum."""
    return line[-TAIL:] == _CHECKSUM % crc32(line[:-TAIL])


class FaultKind(StrEnum):
    TORN = "torn"  # an incomplete or damaged last line, which may never have been committed
    DAMAGED = "damaged"
    EDITED = "edited"  # another program changed the end of a valid line or added a byte order mark
    NEWER = "newer"  # a newer program wrote the line
    FOREIGN = "foreign"  # HEAD belongs to another log
    LOST = "lost"  # the line that HEAD names is missing or different
    HEAD = "head"  # HEAD is damaged
    MISSING = "missing"  # the lines before this line are not in the archive


class Fault(Struct, frozen=True, kw_only=True):
    """The reason why reading a log stopped.

    `seq` is the number expected at this line. Lines count from 1. `file` is relative to the state directory.
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
    """Return a DAMAGED fault for the line after `end`."""
    return Fault(
        kind=FaultKind.DAMAGED, line=end.line + 1, offset=end.offset, seq=end.seq + 1, what=what, file=file
    )
