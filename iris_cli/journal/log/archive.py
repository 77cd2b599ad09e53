"""The archive: lines moved out of the log, in consecutive segments.

A segment is a compressed former log. Its first line has a header. The next segment, or the log, continues with the next
seq. If a line is in a segment and in the log, the line in the log is used.
"""

from __future__ import annotations

import io
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.journal.durable import open_safely
from iris_cli.journal.layout import ARCHIVE
from iris_cli.journal.log.position import START, Fault, FaultKind, Position, fault_at
from iris_cli.journal.log.record import LogRecord
from iris_cli.journal.log.scan import ReadProgress, Scan, origin_of, start_after

_NAME = re.compile(r"events-([0-9]{12})-([0-9]{12})\.jsonl\.gz")
_BUFFER = 1 << 16  # bytes
GZIP = 16 + zlib.MAX_WBITS
"""The `wbits` of zlib for the gzip format."""
_UNKNOWN = ""  # a crc that is not known until the `prev` of the next line is read
LOG_IS_MISSING = "the log is missing, its archive is not"
UNREADABLE = (EOFError, OSError, zlib.error)
"""The errors of reading a truncated or damaged segment."""


class Segment(Struct, frozen=True, kw_only=True):
    """One file of the archive with the lines from seq `first` to `last`."""

    path: Path
    first: int
    last: int

    @property
    def file(self) -> str:
        """The file's name relative to the state directory."""
        return f"{ARCHIVE}/{self.path.name}"


def segment_of(directory: Path, first: int, last: int) -> Segment:
    """Return the segment of a state directory for the lines `first` to `last`. Its file may not exist yet."""
    path = directory / ARCHIVE / f"events-{first:012}-{last:012}.jsonl.gz"
    return Segment(path=path, first=first, last=last)


def segments(directory: Path, before: int = sys.maxsize) -> tuple[Segment, ...]:
    """Return the segments that begin before seq `before`, in order. Raises OSError."""
    try:
        matches = map(_NAME.fullmatch, os.listdir(directory / ARCHIVE))
    except FileNotFoundError:
        return ()
    found = [segment_of(directory, int(match[1]), int(match[2])) for match in matches if match]
    chain = [each for each in found if each.first < before]
    return tuple(sorted(chain, key=lambda each: (each.first, each.last)))


class _GzipReader(io.RawIOBase):
    """The uncompressed content of a gzip file. If it is damaged, returns all bytes before the damage.

    The next read raises one of the errors in `UNREADABLE`.
    """

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__()
        self._packed = packed
        self._offset = 0
        self._input = b""
        self._unpacker = zlib.decompressobj(wbits=GZIP)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def readinto(self, buffer: Any, /) -> int:  # a bytearray or a memoryview
        data = b""
        while not (data or self._unpacker.eof):
            self._input = self._input or self._packed.read(_BUFFER)
            if not self._input:
                raise EOFError("it is truncated")
            data = self._unpack(len(buffer))
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def _unpack(self, limit: int) -> bytes:
        """Decompress at most `limit` bytes. If the input is damaged, halve it to find the bytes before the damage."""
        chunk = self._input
        while True:
            before = self._unpacker.copy()
            try:
                data = self._unpacker.decompress(chunk, limit)
            except zlib.error:
                if len(chunk) == 1:
                    raise
                self._unpacker, chunk = before, chunk[: len(chunk) // 2]
            else:
                self._input = self._unpacker.unconsumed_tail + self._input[len(chunk) :]
                return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Seek to an offset from the start. Seeking backwards decompresses again."""
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        if offset < self._offset:
            self._packed.seek(0)
            self._offset, self._input, self._unpacker = 0, b"", zlib.decompressobj(wbits=GZIP)
        while self._offset < offset and self.read(min(_BUFFER, offset - self._offset)):
            pass
        return self._offset


@contextmanager
def open_segment(segment: Segment) -> Iterator[BinaryIO]:
    """Open a segment's lines for reading. Opening and reading raise the errors in `UNREADABLE`."""
    with open(segment.path, "rb", opener=open_safely) as packed:
        yield cast("BinaryIO", io.BufferedReader(_GzipReader(packed), _BUFFER))


class ArchiveScan:
    """Iterates once over the records of segments. Afterwards `position` is the end of the last valid record.

    The scan starts with the segment that contains the line ending at the position `known`. With `skip` it starts after
    this line. If no segment contains the line, it starts with the first segment. `containing`, `until`: as in `Scan`.
    """

    def __init__(
        self,
        chain: tuple[Segment, ...],
        known: Position = START,
        *,
        skip: bool = False,
        containing: bytes = b"",
        until: int = sys.maxsize,
    ) -> None:
        self._known, self._skip, self._containing, self._until = known, skip, containing, until
        self.position = START
        self.fault: Fault | None = None
        self.current: Scan | None = None
        """The scan of the current or last segment."""
        begin = next((at for at, each in enumerate(chain) if each.first <= known.seq <= each.last), 0)
        self._chain = chain[begin:]
        if begin > 0:
            self.position = start_after(replace(known, seq=chain[begin].first - 1, crc=_UNKNOWN))

    def __iter__(self) -> Iterator[LogRecord]:
        for segment in self._chain:
            self.fault = find_gap(self.position, segment.first, segment.file)
            if self.fault is None:
                yield from self._records(segment)
            if self.fault is not None:
                return

    @property
    def progress(self) -> ReadProgress:
        """Progress of reading. Safe to call from any thread."""
        read = self.position if self.current is None else self.current.position
        return read.seq, self._chain[-1].last if self._chain else 0, "transaction"

    def _records(self, segment: Segment) -> Iterator[LogRecord]:
        scan, problem = None, ""
        try:
            with open_segment(segment) as stream:
                if self.position.crc == _UNKNOWN:
                    self.position = replace(self.position, crc=origin_of(stream).crc)
                    stream.seek(0)
                start = start_after(self.position)
                if self._skip and segment.first == self._known.seq - self._known.line + 1:
                    start = self._known  # the lines have the same offsets as in the former log
                    stream.seek(start.offset)
                scan = self.current = Scan(
                    stream, sys.maxsize, start, containing=self._containing, until=self._until
                )
                yield from scan
        except PermissionError:
            raise  # not damage
        except UNREADABLE as error:
            if scan is None or scan.position.seq != segment.last:  # otherwise all lines were read
                problem = f"the segment can't be read: {error}"
        if scan is not None:
            self.position = scan.position
        end = self.position
        if scan is not None and scan.fault is not None:
            # No process writes to segments, so an incomplete line is damage.
            kind = FaultKind.DAMAGED if scan.fault.kind is FaultKind.TORN else scan.fault.kind
            self.fault = replace(scan.fault, kind=kind, file=segment.file)
        elif problem:
            self.fault = fault_at(replace(end, line=scan.position.line if scan else 0), segment.file, problem)
        elif end.seq != segment.last and end.seq < self._until:
            self.fault = fault_at(end, segment.file, f"the segment ends at seq {end.seq}")


def find_gap(end: Position, first: int, file: str) -> Fault | None:
    """Return a fault if lines are missing between `end` and a file that begins with seq `first`, otherwise None."""
    if first == end.seq + 1:
        return None
    what = f"it begins with seq {first}, the segment before ends at seq {end.seq}"
    if first > end.seq + 1:
        what = f"seq {end.seq + 1} to {first - 1} before this line are missing in the archive"
    return replace(fault_at(start_after(end), file, what), kind=FaultKind.MISSING)
