"""Read a whole log and report all its faults, or end it before the first fault, so that it is usable again."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from iris_cli import files
from iris_cli.clock import file_stamp, iso_time
from iris_cli.core.evolve import ImpossibleHistoryError, replay
from iris_cli.core.model.cluster import Cluster
from iris_cli.errors import LogDamagedError, NotFoundError
from iris_cli.journal.access import LockHolder, check_readable, check_writable
from iris_cli.journal.layout import DAMAGED_PREFIX, LOG
from iris_cli.journal.log import archive
from iris_cli.journal.log.head import Head, head_at, read_head, write_head
from iris_cli.journal.log.position import START, Fault, FaultKind, Header, Position, fault_at
from iris_cli.journal.log.record import FORMAT, BadLineError, LogRecord, NewerLogError, decode_line
from iris_cli.journal.log.scan import (
    Scan,
    bounded_lines,
    committed_lines,
    find_edit,
    origin_of,
    restored_copy,
    start_after,
)


class VerifyReport(Struct, frozen=True, kw_only=True):
    """The state of a log and its archive.

    `sound_until` is the end of the last record before the first finding, in the file `sound_in`. `records` is the
    number of readable records, without an impossible one, `last` the last known seq. If another program has edited the
    log, this is a finding. Then the restored lines are verified, and offsets count bytes of the restored file.
    `unfinished` is a last line that was never committed. It is not a finding, because the next writer moves it out of
    the log.
    """

    records: int
    last: int
    sound_until: Position
    findings: tuple[Fault, ...]
    unfinished: Fault | None
    sound_in: str = LOG
    segments: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def header(self) -> Header | None:
        return self.sound_until.header


OnScan = Callable[[str, Scan], None]
"""Function that is called with the name of each file and with its scan, which knows the progress."""


def verify(directory: Path, on_scan: OnScan = lambda *_: None, *, replayed: bool = False) -> VerifyReport:
    """Read archive and log completely, also after damage. Takes no lock and changes nothing.

    `replayed`: also check that the events up to the first finding are possible. Raises NotFoundError, and
    NotWritableError if the log can't be read.
    """
    log = directory / LOG
    with files.reading(log), ExitStack() as stack:
        check_readable(directory)  # reading a pipe would block
        head = read_head(directory)  # before the log, so that HEAD names no later line
        verifier = _Verifier(head, on_scan, replayed=replayed)
        try:
            stream = stack.enter_context(open(log, "rb", opener=files.open_safely))
        except FileNotFoundError:
            if not archive.segments(directory) and head is None:
                raise NotFoundError(
                    f"no event log in {directory}", hint="name a directory with --state-dir"
                ) from None
            return _verify(directory, None, verifier)
        if (edit := find_edit(stream)) is None:
            return _verify(directory, stream, verifier)
        report = _verify(directory, stack.enter_context(restored_copy(stream)), verifier)
        return replace(report, findings=(edit, *report.findings))


def _verify(directory: Path, stream: BinaryIO | None, verifier: "_Verifier") -> VerifyReport:
    """Verify archive, log and HEAD. `stream` is None if the log is missing."""
    origin = START if stream is None else origin_of(stream)
    unknown = stream is None or (origin == START and _first_line_is_unreadable(stream))
    chain = archive.segments(directory) if unknown else archive.segments(directory, before=origin.seq + 1)
    for segment in chain:
        verifier.read_segment(segment)
    if not unknown:
        verifier.begin_file(LOG, origin.seq + 1, origin)
    if stream is not None:
        verifier.read_file(LOG, stream, os.fstat(stream.fileno()).st_size)
    if chain and unknown:
        verifier.report_missing_log()
    return verifier.report(len(chain))


def _first_line_is_unreadable(stream: BinaryIO) -> bool:
    """Return whether the first line is invalid, so that the number of earlier lines is unknown."""
    stream.seek(0)
    try:
        return decode_line(stream.readline().removesuffix(b"\n")).header is None
    except BadLineError:
        return True
    except NewerLogError:
        return False


_UNKNOWN = ""  # the crc of an unreadable line, known only from the next line


class _Verifier:
    """Verifies all files, in order."""

    def __init__(self, head: Head | None, on_scan: OnScan, *, replayed: bool) -> None:
        self._head = head
        self._on_scan = on_scan
        self._crc_at_head = ""
        self._cluster = Cluster() if replayed else None
        self._end = START  # end of the last valid record
        self._before = START  # position before the record that is being replayed
        self._records = 0
        self._findings: list[Fault] = []
        self._unfinished: Fault | None = None
        self._sound: tuple[str, Position] = ("", START)

    def begin_file(self, file: str, first: int, origin: Position) -> None:
        """Continue with a file whose first line has the seq `first`, according to its name or its header.

        `origin` is the position before this line.
        """
        if (gap := archive.find_gap(self._end, first, file)) is not None:
            self._findings.append(gap)
            self._end = replace(self._end, crc=_UNKNOWN)
        if self._end.crc == _UNKNOWN:
            self._end = replace(self._end, seq=origin.seq, crc=origin.crc)
        self._end = start_after(self._end)

    def read_segment(self, segment: archive.Segment) -> None:
        """Read a segment, also after damage."""
        findings_before, what = len(self._findings), ""
        self._end = start_after(self._end)
        try:
            with archive.open_segment(segment) as stream:
                self.begin_file(
                    segment.file, segment.first, origin_of(stream) if segment.first > 1 else START
                )
                self.read_file(segment.file, stream, sys.maxsize)
        except PermissionError:
            raise  # not damage
        except archive.UNREADABLE as error:
            if self._end.seq != segment.last:  # otherwise all lines were read
                what = f"the segment can't be read: {error}"
        if not what and len(self._findings) == findings_before and self._end.seq != segment.last:
            what = f"the segment ends at seq {self._end.seq}"
        if what:
            self._findings.append(fault_at(self._end, segment.file, what))
        if len(self._findings) > findings_before:
            self._end = replace(self._end, seq=segment.last, crc=_UNKNOWN)

    def report_missing_log(self) -> None:
        """Report a log without valid lines as missing, because a log is never empty after a compaction."""
        if not self._findings or self._findings[-1].file != LOG:
            self._unfinished = None
            self._end = start_after(self._end)
            self._findings.append(fault_at(self._end, LOG, archive.LOG_IS_MISSING))

    def read_file(self, file: str, stream: BinaryIO, size: int) -> None:
        """Read a file from its start. For a damaged segment raises an error in `UNREADABLE`."""
        position: Position | None = start_after(self._end)
        while position is not None:
            stream.seek(position.offset)
            head = self._head if file == LOG else None
            scan = Scan(stream, size, position, head, strict=True)
            self._on_scan(file, scan)
            try:
                self._read_records(file, scan)
            finally:
                self._end, position = scan.position, None
                if not self._findings:
                    self._sound = (file, self._end)
            fault = scan.fault
            if fault is not None and fault.kind is FaultKind.TORN and file == LOG:
                self._unfinished = fault
            elif fault is not None:
                kind = FaultKind.DAMAGED if fault.kind is FaultKind.TORN else fault.kind
                self._findings.append(replace(fault, file=file, kind=kind))
                position = _next_valid(file, stream, size, self._end, self._findings)

    def _read_records(self, file: str, scan: Scan) -> None:
        records = self._count_records(scan)
        if self._cluster is not None and not self._findings:
            try:
                self._cluster = replay(records, self._cluster)
            except ImpossibleHistoryError as error:
                before = self._before
                self._sound = (file, before)
                self._findings.append(fault_at(before, file, error.message))
                self._records -= 1  # the impossible record
        for _ in records:
            pass

    def _count_records(self, scan: Scan) -> Iterator[LogRecord]:
        self._before = scan.position
        for record in scan:
            self._records += 1
            if self._head is not None and record.seq == self._head.seq:
                self._crc_at_head = record.crc
            yield record
            self._before = scan.position

    def report(self, segments: int) -> VerifyReport:
        if self._head is not None:
            self._findings += _findings_of_head(self._head, self._end, self._crc_at_head)
        file, sound = self._sound
        return VerifyReport(
            records=self._records,
            last=max([self._end.seq, *(each.seq for each in self._findings if each.kind is FaultKind.LOST)]),
            sound_until=sound,
            findings=tuple(self._findings),
            unfinished=self._unfinished,
            sound_in=file or LOG,
            segments=segments,
        )


def _next_valid(
    file: str, stream: BinaryIO, size: int, end: Position, findings: list[Fault]
) -> Position | None:
    """Return the position before the first valid line after the invalid line at `end`; None if no valid line follows.

    Adds a finding for each further unreadable line.
    """
    stream.seek(end.offset)
    line, offset = end.line, end.offset
    for raw in bounded_lines(stream, size - offset):
        if line > end.line:
            try:
                record = decode_line(raw.removesuffix(b"\n"), end.header.format if end.header else FORMAT)
                return replace(end, line=line, offset=offset, seq=record.seq - 1, crc=record.prev)
            except (BadLineError, NewerLogError) as error:
                after = replace(end, line=line, offset=offset, seq=end.seq + line - end.line)
                findings.append(fault_at(after, file, str(error)))
        line, offset = line + 1, offset + len(raw)
    return None


def _findings_of_head(head: Head, end: Position, crc_at_head: str) -> list[Fault]:
    """Return a finding if HEAD contradicts the log. `crc_at_head`: crc of the line with HEAD's seq, "" if not read."""
    kind = FaultKind.LOST
    if head.crc == end.crc and end.header is not None and head != head_at(end):
        kind = FaultKind.HEAD
        what = f"HEAD is damaged: it names this line, but not as seq {end.seq} of this log; move HEAD away"
    elif end.header is not None and end.header.cluster_id != head.cluster_id:
        kind, what = FaultKind.FOREIGN, "HEAD belongs to the log of another cluster"
    elif head.seq > end.seq:
        what = f"HEAD says it was committed, but the log ends at seq {end.seq}"
    elif crc_at_head not in ("", head.crc):
        what = "HEAD names another line than this one"
    else:
        return []
    return [Fault(kind=kind, line=max(1, end.line), offset=end.offset, seq=head.seq, what=what)]


class SalvageReport(Struct, frozen=True, kw_only=True):
    """The result of `iris log salvage`. `kept` and `lost` count transactions.

    Lost transactions are at or after the first damage. Some of them may be readable, but have no meaning without the
    missing transactions. `old_log` is a copy of the whole file, None if there was no file. Without `findings` the log
    had no damage. `old_segments` are not read any more.
    """

    kept: int
    lost: int
    findings: tuple[Fault, ...]
    old_log: Path | None
    old_segments: tuple[Path, ...] = ()


def salvage(
    directory: Path,
    *,
    now: float,
    actor: str,
    timeout: float = 10.0,
    disk: files.Disk = files.DISK,
    replayed: bool = False,
) -> SalvageReport:
    """End the log before its first damage. Keep a copy of the old log as `events.jsonl.damaged-<time>`.

    `replayed` also counts impossible events as damage. Line ends that another program changed are restored. If a
    segment is damaged, its part before the damage becomes the log. Raises LockedError, NotWritableError,
    NotFoundError, and LogDamagedError for a log that is too new or belongs to another cluster.
    """
    from iris_cli.journal.log.writer import hold_lock  # filelock is slow to import

    with files.writing(directory):
        check_writable(directory)
    log = directory / LOG
    holder = LockHolder(pid=os.getpid(), actor=actor, command="iris log salvage", since=iso_time(now))
    with hold_lock(directory, holder, timeout), files.writing(log):
        report = verify(directory, replayed=replayed)
        for fault in report.findings:
            if fault.kind is FaultKind.NEWER:
                where = directory / fault.file
                raise LogDamagedError(f"{where} is too new, {fault}", hint="install that iris")
            if fault.kind is FaultKind.FOREIGN:
                raise LogDamagedError(f"{log}: {fault.what}", hint="restore the right log")
        kept = report.sound_until.seq
        if report.ok:
            return SalvageReport(kept=kept, lost=0, findings=(), old_log=None)
        old_log = files.unused_path(directory / (DAMAGED_PREFIX + file_stamp(now))) if log.exists() else None
        if old_log is not None:
            files.copy_range(disk, log, 0, log.stat().st_size, old_log)
        if report.sound_in == LOG and report.sound_until.line:
            with open(log, "rb", opener=files.open_safely) as stream:
                _write_log(directory, disk, islice(committed_lines(stream), report.sound_until.line))
            replaced: tuple[archive.Segment, ...] = ()
        else:
            replaced = _restore_from_archive(directory, disk, report)
        write_head(disk, directory, report.sound_until)
        # The new log begins before these segments, so they are not read any more, even if iris crashes now.
        old_segments = tuple([archive.set_aside(disk, segment, now) for segment in replaced])
    return SalvageReport(
        kept=kept,
        lost=report.last - kept,
        findings=report.findings,
        old_log=old_log,
        old_segments=old_segments,
    )


def _restore_from_archive(
    directory: Path, disk: files.Disk, report: VerifyReport
) -> tuple[archive.Segment, ...]:
    """Make a log of the valid lines of the last segment that has valid lines. Return the segments that it replaces."""
    chain, end, lines = archive.segments(directory), report.sound_until, None
    names = [segment.file for segment in chain]
    number = names.index(report.sound_in) if report.sound_in in names else len(chain)
    if end.line:
        lines = end.line
    elif end.seq:
        number -= 1  # all lines of the segment before are valid
    if not end.seq:
        _write_log(directory, disk, ())
    else:
        with archive.open_segment(chain[number]) as stream:
            _write_log(directory, disk, islice(stream, lines))
    return chain[number:]


def _write_log(directory: Path, disk: files.Disk, lines: Iterable[bytes]) -> None:
    with files.replacing(disk, directory / LOG) as fd:
        for line in lines:
            files.write_all(disk, fd, line)
