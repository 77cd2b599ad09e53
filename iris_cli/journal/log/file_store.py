"""The log as a file: read lines after a position, and commit a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct, field
from msgspec.structs import replace

from iris_cli import files
from iris_cli.core import Cluster, gc_paused
from iris_cli.errors import LogDamagedError, LogReplacedError
from iris_cli.journal.layout import LOG
from iris_cli.journal.log.head import Head, advance_head, head_at, is_head, read_head, write_head
from iris_cli.journal.log.position import START, Fault, FaultKind, Header, Position, fault_at

if TYPE_CHECKING:
    from iris_cli.core.events.events import Event
    from iris_cli.journal.log.archive import ArchiveScan, Compacted
    from iris_cli.journal.log.record import Conflict, LogRecord
    from iris_cli.journal.log.scan import Scan

Keep = Callable[["Iterable[LogRecord]"], "tuple[LogRecord, ...]"]
"""Function that consumes all records while they are read, and returns the records to keep in memory."""

_FIRST_LINE_LIMIT = 1 << 16  # bytes


class Loaded(Struct, frozen=True, kw_only=True):
    """The result of reading the log. `end` is the end of the last valid record, `size` the file's size in bytes.

    `fault` is the reason if reading ended before the end of the file. `head_fits` is False if HEAD and the line that
    HEAD names have different checksums.
    """

    records: tuple[LogRecord, ...]
    end: Position
    size: int
    fault: Fault | None
    head: Head | None
    head_fits: bool


class FileStore:
    """The append-only log of a directory. Only the holder of the lock may append, and only after recovery."""

    def __init__(self, directory: Path, disk: files.Disk = files.DISK) -> None:
        self._directory = directory
        self._path = directory / LOG
        self._disk = disk
        self.end = START  # the position up to which the log was read or written
        self._file: tuple[int, int] | None = None  # device and inode of the log that was read
        self.scan: Scan | ArchiveScan | None = None  # the current or last scan of the log

    def header(self) -> Header | None:
        """Return the header in the first line; None if there is no complete and valid first line. Raises OSError."""
        from iris_cli.journal.log.record import BadLineError, NewerLogError, decode_line

        try:
            with open(self._path, "rb", opener=files.open_safely) as stream:
                line = stream.readline(_FIRST_LINE_LIMIT)
                return decode_line(line.removesuffix(b"\n")).header if line.endswith(b"\n") else None
        except (FileNotFoundError, BadLineError, NewerLogError):
            return None

    @property
    def reached(self) -> Position:
        """The end of the last record that `load` has read, up to date while it reads."""
        scan = self.scan.current if self.scan is not None else None
        return self.end if scan is None else scan.position

    def forget_earliest(self) -> None:
        """Reset the earliest time. An archived snapshot has recorded the earliest time of all lines read so far."""
        self.end = replace(self.end, earliest=None)
        if self.scan is not None and self.scan.current is not None:
            self.scan.current.earliest = None

    def resume(self, position: Position) -> bool:
        """Let `load` continue at a position, if the line that ends there is in the log, or is the last archived line.

        Return False if the log has a different line at this position, or can't be read.
        """
        with suppress(OSError), open(self._path, "rb", opener=files.open_safely) as stream:
            if _record_is_at(stream.fileno(), position):
                status = os.fstat(stream.fileno())
                self.end, self._file = position, (status.st_dev, status.st_ino)
                return True
            from iris_cli.journal.log.scan import origin_of

            origin = origin_of(stream)
            if position.seq > 0 and (origin.seq, origin.crc) == (position.seq, position.crc):
                self.end, self._file = position, None  # the line at `position` is archived
                return True
        return False

    def load(self, after_seq: int = 0, keep: Keep = tuple) -> Loaded:
        """Read the log. `keep` selects the returned records from the records after `after_seq`.

        Reads only new lines if the caller has all records that this store has read. Raises OSError, and
        LogReplacedError if the log is not the log that the caller has read up to `after_seq`.
        """
        if 0 < after_seq == self.end.seq and self._is_unchanged():
            end, head = self.end, head_at(self.end)
            return Loaded(records=keep(()), end=end, size=end.offset, fault=None, head=head, head_fits=True)
        head = read_head(self._directory)  # before the log, so that HEAD names no later line
        try:
            with open(self._path, "rb", opener=files.open_safely) as stream:
                return self._load(stream, head, after_seq, keep)
        except FileNotFoundError:
            if after_seq:
                raise self._replaced_error() from None
            self.end, self._file = START, None
            fault = self._lost_log()
            return Loaded(records=(), end=START, size=0, fault=fault, head=head, head_fits=True)

    def _lost_log(self) -> Fault | None:
        """Return a fault if there is an archive but no log, because a new log must not replace a lost log."""
        from iris_cli.journal.log.archive import LOG_IS_MISSING, segments

        chain = segments(self._directory)
        return fault_at(replace(START, seq=chain[-1].last), LOG, LOG_IS_MISSING) if chain else None

    def _is_unchanged(self) -> bool:
        """Return whether the log still ends at the last position read or written, and HEAD agrees. Raises OSError."""
        try:
            with files.opened(self._path, os.O_RDONLY) as fd:
                as_read = self._is_at_end_of(fd) and _record_is_at(fd, self.end)
            return as_read and is_head(self._directory, self.end)
        except FileNotFoundError:
            return False

    @gc_paused
    def _load(self, stream: BinaryIO, head: Head | None, after_seq: int, keep: Keep) -> Loaded:
        status = os.fstat(stream.fileno())
        from iris_cli.journal.log.scan import Scan, origin_of, start_after

        continues = 0 < self.end.seq <= after_seq and _record_is_at(stream.fileno(), self.end)
        start = self.end if continues else origin_of(stream)
        # By seq: the checksums of the last line that was read earlier, and of the line in HEAD. "" means not read.
        crcs = dict.fromkeys((self.end.seq, head.seq if head else 0), "")
        crcs |= {START.seq: START.crc, start.seq: start.crc}
        fault, end = None, start

        def records() -> Iterator[LogRecord]:
            nonlocal fault, end
            if after_seq < start.seq:
                from iris_cli.journal.log.archive import (  # slow to import, and rare
                    ArchiveScan,
                    find_gap,
                    segments,
                )

                chain = segments(self._directory, before=start.seq + 1)
                self.scan = past = ArchiveScan(chain, self.end if self.end.seq <= after_seq else START)
                yield from past
                fault, end = (
                    past.fault or find_gap(past.position, start.seq + 1, LOG),
                    start_after(past.position),
                )
            if fault is None:
                stream.seek(end.offset)
                self.scan = scan = Scan(stream, status.st_size, end, head)
                yield from scan
                end, fault = scan.position, scan.fault

        kept = keep(_records_after(after_seq, records(), crcs))
        is_other = after_seq > 0 and (end.seq < after_seq or crcs[self.end.seq] != self.end.crc)
        if fault is None or fault.kind is FaultKind.TORN:
            is_cut = fault is not None and head is not None and head.seq > end.seq
            if is_other and not is_cut:
                raise self._replaced_error()
            if end == START:
                fault = self._lost_log() or fault
        if not is_other:  # otherwise the lines that the caller has may be missing in this log
            self.end, self._file = end, (status.st_dev, status.st_ino)
        return Loaded(
            records=kept,
            end=end,
            size=status.st_size,
            fault=fault,
            head=head,
            head_fits=head is None or crcs[head.seq] in ("", head.crc),
        )

    def _replaced_error(self) -> LogReplacedError:
        return LogReplacedError(
            f"{self._path} is no longer the log that this command began with", hint="run the command again"
        )

    def append(self, expected_seq: int, events: Sequence[Event], *, at: float, actor: str) -> int | Conflict:
        """Commit events after the line `expected_seq`. Return their seq, or Conflict if the log has further lines.

        Raises NotWritableError if the commit failed. The caller must then not act on the events.
        """
        from iris_cli.journal.log.record import Conflict, check_events, encode_line, end_of_line

        flags = os.O_WRONLY | os.O_APPEND | (os.O_CREAT if expected_seq == 0 else 0)
        with files.writing(self._path), files.opened(self._path, flags) as fd:
            if not self._is_at_end_of(fd):
                if (fault := self.load(self.end.seq).fault) is not None:
                    raise LogDamagedError(
                        f"{self._path}, {fault}", hint="run the command again: it recovers the log first"
                    )
                if not self._is_at_end_of(fd):
                    raise self._replaced_error()
            if expected_seq != self.end.seq:
                return Conflict(self.end.seq)
            check_events(expected_seq, events)
            line = encode_line(self.end, events, at=at, actor=actor)
            self._commit(fd, line, end_of_line(self.end, line, at))
            return self.end.seq

    def compact(self, check: Callable[[], None], *, at: float, actor: str) -> Compacted:
        """Move all lines that were read to the archive. Only the holder of the lock may call it, after recovery.

        Raises NotWritableError, and the exception of `check` if the lock was lost. No line is lost then.
        """
        from iris_cli.journal.log.archive import compact

        with files.writing(self._path):
            done = compact(self._directory, self._disk, self.end, check, at=at, actor=actor)
            self.end, self._file = done.end, done.file
            return done

    def _is_at_end_of(self, fd: int) -> bool:
        status = os.fstat(fd)
        return self._file == (status.st_dev, status.st_ino) and self.end.offset == status.st_size

    def _commit(self, fd: int, line: bytes, end: Position) -> None:
        """Write the line, sync the log, and write HEAD. If one of these steps fails, restore the log."""
        try:
            files.check_room(fd, len(line))
            files.write_all(self._disk, fd, line)
            self._disk.fsync(fd)
            if end.seq == 1:
                files.sync_directory(self._disk, self._directory)
            advance_head(self._disk, self._directory, end)
        except OSError as error:
            # The line may be on disk, complete or in part, but the caller will not act on it.
            with suppress(OSError):
                # The failed step may have written HEAD. Restore HEAD first, because it must never be ahead of the log.
                if read_head(self._directory) != head_at(self.end):
                    write_head(self._disk, self._directory, self.end)
                self._disk.truncate(fd, self.end.offset)
                self._disk.fsync(fd)
            # The line is removed now, or the log is ahead of HEAD and the next writer repairs the log.
            raise files.not_writable(self._path, error) from error
        self.end = end


def _records_after(after_seq: int, scan: Iterable[LogRecord], crcs: dict[int, str]) -> Iterator[LogRecord]:
    """Yield the records after `after_seq`, and store the checksums of all records whose seq is in `crcs`."""
    for record in scan:
        if record.seq in crcs:
            crcs[record.seq] = record.crc
        if record.seq > after_seq:
            yield record


def _record_is_at(fd: int, position: Position) -> bool:
    """Return whether the record that ends at `position` is unchanged."""
    mark = f'"crc":"{position.crc}"}}\n'.encode("ascii")
    return position.seq == 0 or os.pread(fd, len(mark), max(0, position.offset - len(mark))) == mark


class Fold(Struct):
    """Replays records while they are read, without keeping all in memory. `cluster` is the result.

    Starts from the cluster `start`, stops after the seq `until`, and keeps the records after the seq `kept_after`.
    Calls `keep` after each `every` records. `keep` may return an equal cluster that uses less memory.
    """

    start: Cluster
    kept_after: int | None
    until: int = sys.maxsize
    every: int = sys.maxsize
    keep: Callable[[Cluster], Cluster] = lambda cluster: cluster
    cluster: Cluster = field(default_factory=Cluster)

    def __call__(self, records: Iterable[LogRecord]) -> tuple[LogRecord, ...]:
        """Replay the records. Each call begins with the cluster `start`. Raises IllegalTransitionError."""
        kept: list[LogRecord] = []
        if self.until < sys.maxsize:
            records = takewhile(lambda record: record.seq <= self.until, records)
        if self.kept_after is not None:
            records = _keep_after(records, kept, self.kept_after)
        records, self.cluster = iter(records), self.start
        while True:
            last = self.cluster.seq + self.every
            self.cluster = _replay(islice(records, self.every), self.cluster)
            if self.cluster.seq < last:
                return tuple(kept)
            self.cluster = self.keep(self.cluster)


def _replay(records: Iterator[LogRecord], start: Cluster) -> Cluster:
    if (first := next(records, None)) is None:
        return start
    from iris_cli.core.evolve import replay  # slow to import, because it needs every kind of event

    return replay(chain((first,), records), start)


def _keep_after(records: Iterable[LogRecord], kept: list[LogRecord], kept_after: int) -> Iterator[LogRecord]:
    for record in records:
        if record.seq > kept_after:
            kept.append(record)
        yield record
