"""Reading a log in order, up to its end or to the first line that can't be believed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import BinaryIO

from iris_cli.core.dataclass import dataclass
from iris_cli.journal.record import (
    PROGRAM,
    START,
    BadLineError,
    NewerLogError,
    Position,
    Record,
    decode_line,
    is_intact,
)


class FaultKind(StrEnum):
    TORN = "torn"  # unfinished or damaged, and nothing valid behind it: it may never have happened
    DAMAGED = "damaged"
    NEWER = "newer"  # good, but written by a newer program
    FOREIGN = "foreign"  # good, but HEAD is that of another log


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a log could not be read further. `seq` is the one that was due at this line; lines count from 1."""

    kind: FaultKind
    line: int
    offset: int
    seq: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line} (byte {self.offset}, seq {self.seq}): {self.what}"


class Scan:
    """The records of a stream, once. Afterwards `position` is the end of the last good one.

    Reads from `start`, where the stream must stand, to the byte `size` and not beyond: what others append
    meanwhile is not half seen.
    """

    def __init__(self, stream: BinaryIO, size: int, start: Position = START) -> None:
        self.fault: Fault | None = None
        self._lines = bounded_lines(stream, size - start.offset)
        self._line, self._offset = start.line, start.offset
        self._seq, self._crc, self._at = start.seq, start.crc, start.at
        self._program, self._header = start.program, start.header

    def __iter__(self) -> Iterator[Record]:
        for raw in self._lines:
            try:
                record = self._next(raw)
            except BadLineError as error:
                self._stop(self._severity(error), str(error))
                return
            except NewerLogError as error:
                writer = error.program or self._program or "an unknown program"
                self._stop(FaultKind.NEWER, f"{error.what}: {writer} wrote it, this is {PROGRAM}")
                return
            self._advance(record, len(raw))
            yield record

    @property
    def position(self) -> Position:
        return Position(
            line=self._line,
            offset=self._offset,
            seq=self._seq,
            crc=self._crc,
            at=self._at,
            program=self._program,
            header=self._header,
        )

    def _next(self, raw: bytes) -> Record:
        if raw[-1] != _NEWLINE:
            raise BadLineError("the line is unfinished", intact=False)
        record = decode_line(raw[:-1])
        if record.seq != self._seq + 1:
            raise BadLineError(f"seq {record.seq} follows {self._seq}", intact=True)
        if record.prev != self._crc:
            raise BadLineError(f"prev is {record.prev}, but the line before has {self._crc}", intact=True)
        if (record.header is None) != (self._line > 0):
            raise BadLineError("the header belongs on the first line, and only there", intact=True)
        return record

    def _advance(self, record: Record, length: int) -> None:
        self._line += 1
        self._offset += length
        self._seq, self._crc, self._at = record.seq, record.crc, record.at
        self._program = record.program or self._program
        self._header = self._header or record.header

    def _severity(self, error: BadLineError) -> FaultKind:
        if error.intact or any(is_intact(rest.rstrip(b"\n")) for rest in self._lines):
            return FaultKind.DAMAGED
        return FaultKind.TORN

    def _stop(self, kind: FaultKind, what: str) -> None:
        self.fault = Fault(kind=kind, line=self._line + 1, offset=self._offset, seq=self._seq + 1, what=what)


_NEWLINE = ord("\n")


def bounded_lines(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The lines in the next `size` bytes, with their newlines; the last one may lack its own."""
    for raw in stream:
        if len(raw) >= size:
            if size > 0:
                yield raw[:size]
            return
        size -= len(raw)
        yield raw
