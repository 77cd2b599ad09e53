"""Pieces of output files: the request lines in a script and the parsing of its answer."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from msgspec import Struct

from iris_cli.core.ids import Token, parse_token
from iris_cli.remote.answers import Record, records_of
from iris_cli.remote.frames import Frame, broken

LONGEST_PIECE = 512 << 10
"""The maximum number of bytes of a file that one call fetches."""
_ROOM = 2 << 10  # bytes of an answer for each piece, in addition to its data
_PACKED_MORE = 1 << 10  # bytes by which incompressible data may grow
_STREAMS = frozenset({"out", "err"})
_NUMBER = "(0|[1-9][0-9]{0,14})"
_LOG = re.compile(f"L {_NUMBER} {_NUMBER} {_NUMBER}(?: @{_NUMBER})?( gzip)?")


class LogChunk(Struct, frozen=True, kw_only=True):
    """A piece of an output file: `data` begins at `offset` of `size` bytes. `inode` is 0 if there is no file.

    `idle` is the time since it was last written, in seconds by the worker's clock; None if not requested or unknown.
    """

    data: bytes
    offset: int
    size: int
    inode: int
    idle: float | None = None


class LogPiece(Struct, frozen=True, kw_only=True):
    """A request for at most `limit` bytes of an attempt's output `stream` (`out` or `err`) from `offset` on.

    A negative offset counts from the end. With `dated` the answer includes when the file was last written.
    """

    token: Token
    stream: str
    offset: int
    limit: int
    dated: bool = False


def piece_line(piece: LogPiece) -> str:
    """Return the line that requests a piece of at most LONGEST_PIECE bytes. Raises ValueError."""
    if piece.stream not in _STREAMS:
        raise ValueError(f"{piece.stream[:20]!r} is neither out nor err")
    dated = " dated" if piece.dated else ""
    return f"logs {parse_token(piece.token)} {piece.stream} {int(piece.offset)} {piece.limit}{dated}"


def room_for(pieces: Sequence[LogPiece]) -> int:
    """Return the maximum size in bytes of an answer with all pieces."""
    return sum(2 * piece.limit + _ROOM for piece in pieces)


def log_chunks(frame: Frame, pieces: Sequence[LogPiece]) -> tuple[LogChunk, ...]:
    """Return the answer to `logs` about exactly these pieces. Raises NoAnswer."""
    longest = max((piece.limit for piece in pieces), default=0)
    clock, _, records = records_of(frame, longest + _PACKED_MORE)
    if len(records) != len(pieces):
        raise broken("the answer is about other pieces")
    return tuple(_log_chunk(record, piece, clock) for record, piece in zip(records, pieces, strict=True))


def _log_chunk(record: Record, piece: LogPiece, clock: float) -> LogChunk:
    match = _LOG.fullmatch(record.line)
    if match is None:
        raise broken("the answer is not a piece of a log")
    offset, size, inode = (int(number) for number in match.groups()[:3])
    data = _unpacked(record.data, piece.limit) if match[5] else record.data
    idle = max(0.0, clock - int(match[4])) if match[4] else None
    asked = min(piece.offset, size) if piece.offset >= 0 else max(0, size + piece.offset)
    if len(data) > piece.limit or offset != asked:
        raise broken("the answer is another piece of the log")
    return LogChunk(data=data, offset=offset, size=size, inode=inode, idle=idle)


def _unpacked(packed: bytes, limit: int) -> bytes:
    """Decompress a complete gzip stream to at most `limit` + 1 bytes. Raises NoAnswer."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        data = unpacking.decompress(packed, limit + 1)
    except zlib.error as error:
        raise broken("the answer's data is malformed") from error
    if len(data) <= limit and (not unpacking.eof or unpacking.unused_data):
        raise broken("the answer's data is truncated or too long")
    return data
