"""Read past transactions in order, for commands that show history."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.clock import iso_time
from iris_cli.core.events.events import Transaction
from iris_cli.core.evolve.edit import IllegalTransitionError, ImpossibleHistoryError, lines_about
from iris_cli.errors import IrisError
from iris_cli.journal.durable import open_safely, reading
from iris_cli.journal.layout import LOG
from iris_cli.journal.log.archive import LOG_IS_MISSING, ArchiveScan, find_gap, segments
from iris_cli.journal.log.file_store import Loaded
from iris_cli.journal.log.head import Head, read_head
from iris_cli.journal.log.position import START, Fault, FaultKind, Position, fault_at
from iris_cli.journal.log.record import LogRecord
from iris_cli.journal.log.recovery import Damage, damage_of
from iris_cli.journal.log.scan import ReadProgress, Scan, origin_of, start_after


class LineRange(Struct, frozen=True):
    """The lines after `start`, an earlier position in the log, up to the seq `until`."""

    start: Position = START
    until: int = sys.maxsize


ALL = LineRange()


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
