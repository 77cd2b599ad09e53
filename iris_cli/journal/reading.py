"""Reading the whole past, one transaction after the other: for those who want to know what was, not what is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from iris_cli.core.events import Transaction
from iris_cli.journal.archive import LOG_IS_MISSING, ArchiveScan, missing, segments
from iris_cli.journal.durable import not_readable, open_safely
from iris_cli.journal.fault import Fault, FaultKind, fault_at
from iris_cli.journal.file_store import Loaded
from iris_cli.journal.head import Head, read_head
from iris_cli.journal.layout import LOG
from iris_cli.journal.position import START, Position
from iris_cli.journal.record import Record
from iris_cli.journal.recovery import Damage, damage_of
from iris_cli.journal.scan import HowMuch, Scan, continued, origin_of


class Reading:
    """The transactions of the log in their order, once; with `archive` those of its archive before them.

    All of them, or those behind `start`, which the log is known to have had.
    Takes no lock, changes nothing, and holds one transaction at a time. Afterwards `damage` says why it ended before
    the end, if it did; `archived` counts the transactions that went to the archive, read or not. `warnings` are
    what else should be told. Raises NotWritableError if the log can't be read, LogDamagedError if none of it is
    to be believed.
    """

    def __init__(
        self, directory: Path, *, archive: bool, start: Position = START, warnings: tuple[str, ...] = ()
    ) -> None:
        self.warnings = warnings
        self.damage: Damage | None = None
        self.archived = 0
        self.begun = False  # whether there is a log at all
        self.scan: Scan | ArchiveScan | None = None  # what is being read, or was read last
        self._directory = directory
        self._log = directory / LOG
        self._archive = archive
        self._head_fits = True
        self._start = start

    @property
    def how_far(self) -> HowMuch:
        """How much of archive or log has been read. May be asked from any thread."""
        return self.scan.how_far if self.scan is not None else (0, 0, "bytes")

    def __iter__(self) -> Iterator[Transaction]:
        try:
            head = read_head(self._directory)  # before the log, which only grows
            for each in self._records(head):
                if head is not None and each.seq == head.seq:
                    self._head_fits = each.crc == head.crc
                yield each
        except OSError as error:
            raise not_readable(self._log, error) from error

    def _records(self, head: Head | None) -> Iterator[Record]:
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(open(self._log, "rb", opener=open_safely))
            except FileNotFoundError:
                yield from self._without_log(head)
                return
            self.begun = True
            size, end = os.fstat(stream.fileno()).st_size, origin_of(stream)
            self.archived, fault = end.seq, None
            if end.seq < self._start.seq:
                end = self._start
            elif self._archive and end.seq > self._start.seq:
                self.scan = past = ArchiveScan(segments(self._directory, before=end.seq + 1))
                yield from (each for each in past if each.seq > self._start.seq)
                fault = past.fault or missing(past.position, end.seq + 1, LOG)
                end = continued(past.position)
            if fault is None:
                stream.seek(end.offset)
                self.scan = scan = Scan(stream, size, end, head)
                yield from scan
                end, fault = scan.position, scan.fault
            is_empty = end == START and (fault is None or fault.kind is FaultKind.TORN)
            if is_empty and segments(self._directory):
                yield from self._without_log(head)
            else:
                self._judge(end, size, fault, head)

    def _without_log(self, head: Head | None) -> Iterator[Record]:
        """What is left where the log itself was lost."""
        chain, end, fault = segments(self._directory), START, None
        if chain:
            self.begun, self.archived = True, chain[-1].last
            self.scan = past = ArchiveScan(chain if self._archive else ())
            yield from past
            end = continued(past.position)
            fault = past.fault or fault_at(end, LOG, LOG_IS_MISSING)
        self._judge(end, 0, fault, head)

    def _judge(self, end: Position, size: int, fault: Fault | None, head: Head | None) -> None:
        loaded = Loaded(records=(), end=end, size=size, fault=fault, head=head, head_fits=self._head_fits)
        self.damage = damage_of(self._log, loaded)
        if self.damage is not None and not self.damage.readable:
            raise self.damage.error()
