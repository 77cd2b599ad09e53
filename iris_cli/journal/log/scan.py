"""Read a log in order, up to its end or to the first invalid line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias, cast

from msgspec.structs import replace

from iris_cli.journal.log.head import Head
from iris_cli.journal.log.position import PROGRAM, START, Fault, FaultKind, Position, is_intact
from iris_cli.journal.log.record import FORMAT, BadLineError, LogRecord, NewerLogError, decode_line

ReadProgress: TypeAlias = tuple[int, int, str]
"""The amount read so far, the total amount (0 if unknown), and the unit."""


class Scan:
    """Iterates once over the records of one file. Afterwards `position` is the end of the last valid record.

    Reads from `start`, the current position of the stream, up to byte `size`, so that a line that is being appended is
    not read. The line that HEAD (`head`) names is valid even without its newline. `position` then counts the newline.
    `strict`: duplicate keys are damage. `containing`: skip valid lines without this text. `until`: the last seq.
    """

    def __init__(
        self,
        stream: BinaryIO,
        size: int,
        start: Position = START,
        head: Head | None = None,
        *,
        strict: bool = False,
        containing: bytes = b"",
        until: int = sys.maxsize,
    ) -> None:
        self._containing, self._until = containing, until
        self._strictly = strict
        self.fault: Fault | None = None
        self.size = size
        self._committed = f',"crc":"{head.crc if head else ""}"}}'.encode("ascii", "replace")
        self._lines = bounded_lines(stream, size - start.offset)
        self._line, self._offset = start.line, start.offset
        self._seq, self._crc, self._at, self.earliest = start.seq, start.crc, start.at, start.earliest
        self._program, self._header = start.program, start.header
        self._format = start.header.format if start.line and start.header else FORMAT

    def __iter__(self) -> Iterator[LogRecord]:
        for line in self._lines:
            if self._seq >= self._until:
                return
            if self._containing and self._line and self._containing not in line and is_intact(line[:-1]):
                self._line, self._offset, self._seq = self._line + 1, self._offset + len(line), self._seq + 1
                self._crc = line[-11:-3].decode("ascii")
                continue
            raw = line + b"\n" if line.endswith(self._committed) else line
            try:
                record = self._next(raw)
            except BadLineError as error:
                if edit := describe_edit(raw):
                    self._stop(FaultKind.EDITED, edit)
                else:
                    rest = (as_committed(line).rstrip(b"\n") for line in self._lines)
                    is_damaged = error.intact or any(map(is_intact, rest))
                    kind = FaultKind.DAMAGED if is_damaged else FaultKind.TORN
                    self._stop(kind, str(error))
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
            earliest=self.earliest,
            program=self._program,
            header=self._header,
        )

    @property
    def current(self) -> "Scan":
        return self

    @property
    def progress(self) -> ReadProgress:
        """Progress of reading. Safe to call from any thread."""
        return self._offset, self.size if self.size < sys.maxsize else 0, "bytes"

    def _next(self, raw: bytes) -> LogRecord:
        if raw[-1] != _NEWLINE:
            raise BadLineError("the line is unfinished", intact=False)
        record = decode_line(raw[:-1], self._format, strict=self._strictly)
        if record.seq != self._seq + 1:
            raise BadLineError(f"seq {record.seq} follows {self._seq}", intact=True)
        if record.prev != self._crc:
            raise BadLineError(f"prev is {record.prev}, but the line before has {self._crc}", intact=True)
        if (record.header is None) != (self._line > 0):
            raise BadLineError("the header belongs on the first line, and only there", intact=True)
        return record

    def _advance(self, record: LogRecord, length: int) -> None:
        self._line += 1
        self._offset += length
        self._seq, self._crc, self._at = record.seq, record.crc, record.at
        if self.earliest is None or record.at < self.earliest:
            self.earliest = record.at
        self._program = record.program or self._program
        if record.header is not None:
            self._header, self._format = record.header, record.header.format

    def _stop(self, kind: FaultKind, what: str) -> None:
        self.fault = Fault(kind=kind, line=self._line + 1, offset=self._offset, seq=self._seq + 1, what=what)


_NEWLINE = ord("\n")
_FIRST_LINE_LIMIT = 1 << 16  # bytes


def bounded_lines(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines in the next `size` bytes, with newlines; the last line may have none."""
    for raw in stream:
        if len(raw) >= size:
            if size > 0:
                yield raw[:size]
            return
        size -= len(raw)
        yield raw


def origin_of(stream: BinaryIO) -> Position:
    """Return the position before the first line of a log file: START, or the end of the archived lines.

    Its seq and checksum are taken from the first line. Return START if the first line can't be read.
    """
    stream.seek(0)
    try:
        first = as_committed(stream.readline(_FIRST_LINE_LIMIT))
        record = decode_line(first.removesuffix(b"\n"))
    except (BadLineError, NewerLogError):
        return START
    return START if record.header is None else Position(seq=record.seq - 1, crc=record.prev)


def start_after(end: Position) -> Position:
    """Return the position at the start of the next file, if the file before ends at `end`."""
    return replace(end, line=0, offset=0)


# Detection and removal of CR and byte order marks that another program has added, such as an editor on Windows. The
# checksum of a line proves that the removal restores the committed bytes.


_BOM = b"\xef\xbb\xbf"
_CR_LF = b"\r\n"
_REWROTE = "another program rewrote the file"


def as_committed(line: bytes) -> bytes:
    """Return the line without an added CR or byte order mark, but only if this repairs the checksum."""
    if not line.endswith(_CR_LF) and not line.startswith(_BOM):
        return line
    original = line.removeprefix(_BOM)
    original = original.removesuffix(_CR_LF) + b"\n" if original.endswith(_CR_LF) else original
    return original if is_intact(original.removesuffix(b"\n")) else line


def describe_edit(line: bytes) -> str:
    """Return a description of the text added to the line; "" if its removal does not repair the checksum."""
    if as_committed(line) == line:
        return ""
    if line.endswith(_CR_LF):
        return f"it ends in CR LF: {_REWROTE}"
    return f"a byte order mark stands before it: {_REWROTE}"


def find_edit(stream: BinaryIO) -> Fault | None:
    """Return a fault for the first edited line of a file; None if no line was edited."""
    stream.seek(0)
    offset = 0
    for number, line in enumerate(stream, start=1):
        if what := describe_edit(line):
            return Fault(
                kind=FaultKind.EDITED, line=number, offset=offset, seq=_seq_of(line, number), what=what
            )
        offset += len(line)
    return None


@contextmanager
def restored_copy(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a temporary file with the lines of another file as they were committed."""
    from tempfile import TemporaryFile  # slow to import, and rare

    with TemporaryFile() as copy:
        copy.writelines(committed_lines(stream))
        copy.flush()
        yield cast("BinaryIO", copy)


def committed_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Return the lines of a file, from its start, as they were committed."""
    stream.seek(0)
    return map(as_committed, stream)


def _seq_of(line: bytes, number: int) -> int:
    try:
        return decode_line(as_committed(line).removesuffix(b"\n")).seq
    except (BadLineError, NewerLogError):
        return number
