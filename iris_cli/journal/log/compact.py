"""Move the lines of the log to the archive, so that commands read a short log.

At every moment each line is in the log, in the archive, or in both.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from iris_cli.clock import file_stamp
from iris_cli.core.events.events import LogCompacted
from iris_cli.errors import LogDamagedError
from iris_cli.journal.durable import Disk, make_directory, open_safely, replacing, unused_path, write_all
from iris_cli.journal.layout import ARCHIVE, LOG, OLD_SUFFIX
from iris_cli.journal.log.archive import GZIP, Segment, segment_of, segments
from iris_cli.journal.log.head import advance_head
from iris_cli.journal.log.position import Position, is_intact
from iris_cli.journal.log.record import encode_line, end_of_line
from iris_cli.journal.log.scan import bounded_lines, origin_of, start_after

_CHUNK = 1 << 20  # bytes of a log that are compressed in one step


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
