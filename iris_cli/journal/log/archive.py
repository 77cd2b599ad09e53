"""The archive: lines moved out of the log, in consecutive segments.

A segment is a compressed former log. Its first line has a header. The next segment, or the log, continues with the next
seq. A compaction moves the lines of the log to a new segment, so that commands read a short log. At every moment each
line is in the log, in the archive, or in both. Then the line in the log is used.
"""

import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from iris_cli.clock import file_stamp
from iris_cli.core.events.events import LogCompacted
from iris_cli.errors import LogDamagedError
from iris_cli.files import Disk, make_directory, open_safely, replacing, unused_path, write_all
from iris_cli.journal.layout import ARCHIVE, LOG, OLD_SUFFIX
from iris_cli.journal.log.head import advance_head
from iris_cli.journal.log.position import START, Fault, FaultKind, Position, fault_at, is_intact
from iris_cli.journal.log.record import LogRecord, encode_line, end_of_line
from iris_cli.journal.log.scan import ReadProgress, Scan, bounded_lines, origin_of, start_after

_NAME = re.compile(r"events-([0-9]{12})-([0-9]{12})\.jsonl\.gz")
_BUFFER = 1 << 16  # bytes
_CHUNK = 1 << 20  # bytes of a log that are compressed in one step
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


class Compacted(Struct, frozen=True, kw_only=True):
    """The result of a compaction. Sizes in bytes. `end` is the end of the new log, `file` its device and inode."""

    segment: Segment
    bytes_before: int
    bytes_archived: int
    bytes_after: int
    end: Position
    file: tuple[int, int]


def compact(
    directory: Path, disk: Disk, end: Position, check: Callable[[], None], *, at: float, actor: str
) -> Compacted:
    """Move the lines of the log, which ends at `end`, to a segment, and start a new log after these lines.

    The caller holds the lock and has read the log without faults. `check` raises an error if the lock was lost. Raises
    OSError, and LogDamagedError if the log has changed. After a crash the log is either the old or the new log.
    """
    assert end.header is not None, "an empty log has nothing to compact"
    log = directory / LOG
    with open(log, "rb", opener=open_safely) as stream:
        segment = segment_of(directory, origin_of(stream).seq + 1, end.seq)
    make_directory(disk, directory / ARCHIVE)
    for other in segments(directory):
        if other.last >= segment.first:  # left by an interrupted compaction or a salvage
            set_aside(disk, other, at)
    # The constant name lets a compaction overwrite the draft that a killed compaction has left.
    with replacing(disk, segment.path, draft_name="segment.tmp") as fd:
        packer = zlib.compressobj(wbits=GZIP)
        with open(log, "rb", opener=open_safely) as stream:
            for chunk in _verified_chunks(log, bounded_lines(stream, end.offset), end):
                if packed := packer.compress(chunk):
                    write_all(disk, fd, packed)
        write_all(disk, fd, packer.flush())
    # If iris crashes before the log is replaced, segment and log have the same lines, and readers use the log.
    line = encode_line(end, [LogCompacted(name=end.header.cluster_name, through=end.seq)], at=at, actor=actor)
    # `check`: if the lock was lost, other processes may have committed to the old log.
    with replacing(disk, log, check) as fd:
        write_all(disk, fd, line)
        status = os.fstat(fd)
    # If iris crashes now, the new log is ahead of HEAD, and the next writer repairs HEAD.
    new_end = end_of_line(start_after(end), line, at)
    advance_head(disk, directory, new_end)
    return Compacted(
        segment=segment,
        bytes_before=end.offset,
        bytes_archived=segment.path.stat().st_size,
        bytes_after=new_end.offset,
        end=new_end,
        file=(status.st_dev, status.st_ino),
    )


def set_aside(disk: Disk, segment: Segment, now: float) -> Path:
    """Rename a segment so that it is not read any more. Return its new path. Raises OSError."""
    kept = unused_path(segment.path.with_name(f"{segment.path.name}{OLD_SUFFIX}{file_stamp(now)}"))
    disk.rename(segment.path, kept)
    return kept


def _verified_chunks(log: Path, lines: Iterator[bytes], end: Position) -> Iterator[bytes]:
    """Yield the lines in chunks. Raises LogDamagedError if a checksum is wrong or the lines do not end at `end`."""
    chunk, size, number, last = [], 0, 0, b""
    for number, line in enumerate(lines, 1):
        if not is_intact(line[:-1]):
            raise LogDamagedError(
                f"{log} changed while it was read, at line {number}", hint="iris log verify"
            )
        chunk.append(line)
        size, last = size + len(line), line
        if size >= _CHUNK:
            yield b"".join(chunk)
            chunk, size = [], 0
    if number != end.line or last[-11:-3].decode("ascii", "replace") != end.crc:
        raise LogDamagedError(f"{log} changed while it was read", hint="iris log verify")
    yield b"".join(chunk)
