"""Reading a log in order, up to its end or to the first line that can't be believed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias, cast

from msgspec.structs import replace

from iris_cli.journal.log.head import Head
from iris_cli.journal.log.position import PROGRAM, START, Fault, FaultKind, Position, is_intact
from iris_cli.journal.log.record import FORMAT, BadLineError, LogRecord, NewerLogError, decode_line

HowMuch: TypeAlias = tuple[int, int, str]
"""How much was read, of how much (0: nobody knows), and what is counted."""


class Scan:
    """The records of one file, once. Afterwards `position` is the end of the last good one.

    Reads from `start`, where the stream must stand, to the byte `size` and not beyond: what others append
    meanwhile is not half seen. A line that `head` names counts without its newline, too; `position` is then behind
    where that belongs. `strictly`: a key that stands twice is damage, too. `about`: sound lines without this text are
    passed over. It ends behind the seq `until`.
    """

    def __init__(
        self,
        stream: BinaryIO,
        size: int,
        start: Position = START,
        head: Head | None = None,
        *,
        strictly: bool = False,
        about: bytes = b"",
        until: int = sys.maxsize,
    ) -> None:
        self._about, self._until = about, until
        self._strictly = strictly
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
            if self._about and self._line and self._about not in line and is_intact(line[:-1]):
                self._line, self._offset, self._seq = self._line + 1, self._offset + len(line), self._seq + 1
                self._crc = line[-11:-3].decode("ascii")
                continue
            raw = line + b"\n" if line.endswith(self._committed) else line
            try:
                record = self._next(raw)
            except BadLineError as error:
                if edit := what_was_added(raw):
                    self._stop(FaultKind.EDITED, edit)
                else:
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
            earliest=self.earliest,
            program=self._program,
            header=self._header,
        )

    @property
    def current(self) -> Scan:
        """The scan of the file that is being read."""
        return self

    @property
    def how_far(self) -> HowMuch:
        """May be asked from any thread."""
        return self._offset, self.size if self.size < sys.maxsize else 0, "bytes"

    def _next(self, raw: bytes) -> LogRecord:
        if raw[-1] != _NEWLINE:
            raise BadLineError("the line is unfinished", intact=False)
        record = decode_line(raw[:-1], self._format, strictly=self._strictly)
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

    def _severity(self, error: BadLineError) -> FaultKind:
        if error.intact or any(is_intact(as_committed(rest).rstrip(b"\n")) for rest in self._lines):
            return FaultKind.DAMAGED
        return FaultKind.TORN

    def _stop(self, kind: FaultKind, what: str) -> None:
        self.fault = Fault(kind=kind, line=self._line + 1, offset=self._offset, seq=self._seq + 1, what=what)


_NEWLINE = ord("\n")
_FIRST_LINE_LIMIT = 1 << 16  # bytes


def bounded_lines(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The lines in the next `size` bytes, with their newlines; the last one may lack its own."""
    for raw in stream:
        if len(raw) >= size:
            if size > 0:
                yield raw[:size]
            return
        size -= len(raw)
        yield raw


def origin_of(stream: BinaryIO) -> Position:
    """Where a file of the log begins: at START, or behind the lines that its first one says went before.

    What these end in is its word. A first line that can't be read says nothing: START.
    """
    stream.seek(0)
    try:
        first = as_committed(stream.readline(_FIRST_LINE_LIMIT))
        record = decode_line(first.removesuffix(b"\n"))
    except (BadLineError, NewerLogError):
        return START
    return START if record.header is None else Position(seq=record.seq - 1, crc=record.prev)


def continued(end: Position) -> Position:
    """The position in the next file when the one before was read to its `end`."""
    return replace(end, line=0, offset=0)


# A log that another program rewrote as a text file of Windows: what it added, and the lines without that.
#
# The checksum of a line vouches for the bytes that were committed, so nothing is lost by such an edit.


_BOM = b"\xef\xbb\xbf"
_CR_LF = b"\r\n"
_REWROTE = "another program rewrote the file"


def as_committed(line: bytes) -> bytes:
    """The line without what an edit added to it; the line as it is if that does not make its checksum right."""
    if not line.endswith(_CR_LF) and not line.startswith(_BOM):
        return line
    original = line.removeprefix(_BOM)
    original = original.removesuffix(_CR_LF) + b"\n" if original.endswith(_CR_LF) else original
    return original if is_intact(original.removesuffix(b"\n")) else line


def what_was_added(line: bytes) -> str:
    """What an edit added to the line, in words; "" if its checksum stays wrong without that."""
    if as_committed(line) == line:
        return ""
    if line.endswith(_CR_LF):
        return f"it ends in CR LF: {_REWROTE}"
    return f"a byte order mark stands before it: {_REWROTE}"


def find_edit(stream: BinaryIO) -> Fault | None:
    """The first edited line of a file; None if there is none."""
    stream.seek(0)
    offset = 0
    for number, line in enumerate(stream, start=1):
        if what := what_was_added(line):
            return Fault(
                kind=FaultKind.EDITED, line=number, offset=offset, seq=_seq_of(line, number), what=what
            )
        offset += len(line)
    return None


@contextmanager
def restored(stream: BinaryIO) -> Iterator[BinaryIO]:
    """A temporary file with the lines of another one as they were committed."""
    from tempfile import TemporaryFile  # slow to import, and rare

    with TemporaryFile() as made:
        made.writelines(committed_lines(stream))
        made.flush()
        yield cast("BinaryIO", made)


def committed_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, from its beginning, as they were committed."""
    stream.seek(0)
    return map(as_committed, stream)


def _seq_of(line: bytes, number: int) -> int:
    try:
        return decode_line(as_committed(line).removesuffix(b"\n")).seq
    except (BadLineError, NewerLogError):
        return number
