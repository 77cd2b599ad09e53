"""How far a log was read, and the checksum that its lines end in: all that is needed where it has nothing new."""

from __future__ import annotations

from zlib import crc32

from msgspec import Struct

from iris_cli import __version__

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
