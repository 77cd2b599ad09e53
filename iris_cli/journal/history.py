"""Read past transactions in order, for commands that show history.

A command reads only a range of lines. The range is found by the positions of archived snapshots.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from iris_cli.clock import iso_time
from iris_cli.core import Cluster, JobId
from iris_cli.core.events.events import Transaction
from iris_cli.core.evolve.edit import IllegalTransitionError, ImpossibleHistoryError, lines_about
from iris_cli.errors import IrisError
from iris_cli.files import open_safely, reading
from iris_cli.journal.layout import LOG
from iris_cli.journal.log.archive import LOG_IS_MISSING, ArchiveScan, find_gap, segments
from iris_cli.journal.log.file_store import Loaded
from iris_cli.journal.log.head import Head, read_head
from iris_cli.journal.log.position import START, Fault, FaultKind, Position, fault_at
from iris_cli.journal.log.record import FORMAT, BadLineError, LogRecord, NewerLogError, decode_line
from iris_cli.journal.log.recovery import Damage, damage_of
from iris_cli.journal.log.scan import ReadProgress, Scan, origin_of, start_after
from iris_cli.journal.snapshot.cache import ReplayTo, SnapshotCache
from iris_cli.journal.snapshot.reading import UNUSABLE, SnapshotFile, SnapshotFiles, read_snapshot


class LineRange(Struct, frozen=True):
    """The lines after `start`, an earlier position in the log, up to the seq `until`."""

    start: Position = START
    until: int = sys.maxsize


ALL = LineRange()

_WINDOW = 1 << 16  # bytes at the end of the log in which the last lines are searched first


class Reading:
    """Iterates once over the transactions of the log. With `archive`, archived transactions come first.

    Yields the transactions in the range `lines`. `containing`: transactions without this text may be skipped. Takes no
    lock, and holds one transaction at a time in memory. Afterwards `damage` is the reason if reading ended early, and
    `archived` is the number of transactions in the archive. Raises NotWritableError if the log can't be read, and
    LogDamagedError if no part of the log can be trusted.
    """

    def __init__(
        self,
        directory: Path,
        lines: LineRange = ALL,
        *,
        archive: bool,
        containing: str = "",
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.warnings = warnings
        self._lines = lines
        self._containing = containing.encode()
        self.damage: Damage | None = None
        self.archived = 0
        self.log_exists = False  # True if there is a log
        self.scan: Scan | ArchiveScan | None = None  # the current or last scan
        self._directory = directory
        self._log = directory / LOG
        self._archive = archive
        self._head_fits = True

    @property
    def progress(self) -> ReadProgress:
        """Progress in archive or log. Safe to call from any thread."""
        return self.scan.progress if self.scan is not None else (0, 0, "bytes")

    def __iter__(self) -> Iterator[Transaction]:
        with reading(self._log):
            head = read_head(self._directory)  # before the log, so that HEAD names no later line
            for each in self._records(head):
                if head is not None and each.seq == head.seq:
                    self._head_fits = each.crc == head.crc
                yield each

    def _records(self, head: Head | None) -> Iterator[LogRecord]:
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(open(self._log, "rb", opener=open_safely))
            except FileNotFoundError:
                yield from self._archived_records(head)
                return
            self.log_exists = True
            size, end = os.fstat(stream.fileno()).st_size, origin_of(stream)
            start, until = self._lines.start, self._lines.until
            self.archived, fault = end.seq, None
            if end.seq < start.seq == end.seq + start.line:
                end = start
            elif self._archive and end.seq > start.seq:
                chain = segments(self._directory, before=min(end.seq, until) + 1)
                self.scan = past = ArchiveScan(
                    chain, start, skip=start.seq > 0, containing=self._containing, until=until
                )
                yield from (each for each in past if each.seq > start.seq)
                if past.fault is None and past.position.seq >= until:
                    return
                fault = past.fault or find_gap(past.position, end.seq + 1, LOG)
                end = start_after(past.position)
            if fault is None:
                stream.seek(end.offset)
                self.scan = scan = Scan(stream, size, end, head, containing=self._containing, until=until)
                yield from (each for each in scan if each.seq > start.seq)
                end, fault = scan.position, scan.fault
                if fault is None and end.seq >= until:
                    return
            is_empty = end == START and (fault is None or fault.kind is FaultKind.TORN)
            if is_empty and segments(self._directory):
                yield from self._archived_records(head)
            else:
                self._set_damage(end, size, fault, head)

    def _archived_records(self, head: Head | None) -> Iterator[LogRecord]:
        """Yield the archived records of a log that was lost."""
        chain, end, fault = segments(self._directory), START, None
        if chain:
            self.log_exists, self.archived = True, chain[-1].last
            self.scan = past = ArchiveScan(chain if self._archive else ())
            yield from past
            end = start_after(past.position)
            fault = past.fault or fault_at(end, LOG, LOG_IS_MISSING)
        self._set_damage(end, 0, fault, head)

    def _set_damage(self, end: Position, size: int, fault: Fault | None, head: Head | None) -> None:
        loaded = Loaded(records=(), end=end, size=size, fault=fault, head=head, head_fits=self._head_fits)
        self.damage = damage_of(self._log, loaded)
        if self.damage is not None and not self.damage.readable:
            raise self.damage.error()


MAX_STORY_EVENTS = 40
"""Maximum number of events that `add_story` adds. It only counts earlier events."""


def add_story(error: IllegalTransitionError, read: Callable[[], Iterable[Transaction]]) -> None:
    """Add the log's events about the task of an error, unless it has them. Ignore errors of reading the log."""
    if error.task is None or error.log_was_read:
        return
    error.log_was_read = True
    last = error.seq if isinstance(error, ImpossibleHistoryError) else None
    lines: deque[str] = deque(maxlen=MAX_STORY_EVENTS)
    number = 0
    with suppress(IrisError):
        for each in read():
            if last is not None and each.seq > last:
                break
            for line in lines_about(error.task, each.events, f"seq {each.seq} {iso_time(each.at)}"):
                lines.append(line)
                number += 1
    omitted = (f"{number - MAX_STORY_EVENTS} earlier events",) if number > MAX_STORY_EVENTS else ()
    error.attach(error.task, earlier=(*omitted, *lines))


class LineRanges(Struct):
    """The ranges of lines between the snapshots of a state directory.

    If a snapshot is unusable, ranges are longer than necessary. `fits` and `replay_to` are as in `SnapshotCache.read`.
    """

    directory: Path
    snapshots: SnapshotCache
    fits: Callable[[Position], bool]
    replay_to: ReplayTo

    def range_before(self, time: float) -> tuple[Cluster, LineRange]:
        """Return the range with the last transaction at or before a time, and the cluster at the range's start."""
        with suppress(*UNUSABLE):
            files = self.snapshots.files(self.fits)
            if files is None:
                return Cluster(), ALL
            newest_first = list(files.newest_first())
            for earlier, later in zip([*newest_first, None], [None, *newest_first], strict=True):
                start = earlier.header.position if earlier is not None else START
                end = later.header.position if later is not None else None
                if end is not None and (end.earliest or 0.0) > time:
                    continue
                part = LineRange(start, end.seq if end is not None else sys.maxsize)
                if any(each.at <= time for each in Reading(self.directory, part, archive=True)):
                    return self._cluster(files, earlier) if earlier is not None else Cluster(), part
        return Cluster(), ALL

    def ranges_of_job(self, job: JobId) -> list[LineRange]:
        """Return the ranges that may contain events about a job, in order."""
        ranges: list[LineRange] = []
        start = START
        try:
            files = self.snapshots.files(self.fits)
            for file in reversed(list(files.newest_first())) if files is not None else ():
                header = file.header
                quoted_id = f'"{job}"'.encode()
                if quoted_id in file.read(header.open) or quoted_id in file.read(header.ended):
                    ranges.append(LineRange(start, header.position.seq))
                start = header.position
        except UNUSABLE:
            return [ALL]
        return [*ranges, LineRange(start)]

    def range_of_last(self, lines: int) -> LineRange:
        """Return a range with at least the last `lines` lines."""
        log = self.directory / LOG
        try:
            with open(log, "rb", opener=open_safely) as stream:
                if (start := _position_before_last(stream, lines)) is not None:
                    return LineRange(start)
                begin = origin_of(stream).seq
            files = self.snapshots.files(self.fits) if begin else None
            for file in files.newest_first() if files is not None else ():
                if file.header.position.seq + lines <= begin:
                    return LineRange(file.header.position)
        except (*UNUSABLE, BadLineError, NewerLogError):
            pass
        return ALL

    def _cluster(self, files: SnapshotFiles, file: SnapshotFile) -> Cluster:
        replay_to = partial(self.replay_to, file.header.position)
        return read_snapshot(self.directory, file, replay_to, archived=file is not files.current)


def _position_before_last(stream: BinaryIO, lines: int) -> Position | None:
    """Return the position before the last lines; None if the log is shorter. Raises BadLineError, NewerLogError."""
    origin, size = origin_of(stream), os.fstat(stream.fileno()).st_size
    stream.seek(0)
    header = decode_line(stream.readline().removesuffix(b"\n")).header
    window, parts = 0, [b""]
    while len(parts) < lines + 3:  # the line before these lines must be complete
        if window >= size:
            return None
        window = max(_WINDOW, 4 * window)
        stream.seek(max(0, size - window))
        parts = stream.read(min(size, window)).rsplit(b"\n", lines + 2)
    record = decode_line(parts[1], header.format if header is not None else FORMAT)
    offset = size - sum(map(len, parts[2:])) - lines
    return Position(
        line=record.seq - origin.seq,
        offset=offset,
        seq=record.seq,
        crc=record.crc,
        at=record.at,
        header=header,
    )
