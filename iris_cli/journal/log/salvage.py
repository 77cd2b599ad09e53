"""Make a damaged log usable again. It then ends before the damage, and a copy of the old file is kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from msgspec import Struct

from iris_cli.clock import file_stamp, iso_time
from iris_cli.errors import LogDamagedError
from iris_cli.journal.access import check_writable
from iris_cli.journal.durable import (
    DISK,
    Disk,
    copy_range,
    open_safely,
    replacing,
    unused_path,
    write_all,
    writing,
)
from iris_cli.journal.holder import LockHolder
from iris_cli.journal.layout import DAMAGED_PREFIX, LOG
from iris_cli.journal.log.archive import Segment, open_segment, segments
from iris_cli.journal.log.compact import set_aside
from iris_cli.journal.log.head import write_head
from iris_cli.journal.log.position import Fault, FaultKind
from iris_cli.journal.log.scan import committed_lines
from iris_cli.journal.log.verify import VerifyReport, verify


class SalvageReport(Struct, frozen=True, kw_only=True):
    """The result of a salvage. `kept` and `lost` count transactions.

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
    disk: Disk = DISK,
    replayed: bool = False,
) -> SalvageReport:
    """End the log before its first damage. Keep a copy of the old log as `events.jsonl.damaged-<time>`.

    `replayed` also counts impossible events as damage. Line ends that another program changed are restored. If a
    segment is damaged, its part before the damage becomes the log. Raises LockedError, NotWritableError,
    NotFoundError, and LogDamagedError for a log that is too new or belongs to another cluster.
    """
    from iris_cli.journal.lock import StateLock  # filelock is slow to import

    with writing(directory):
        check_writable(directory)
    log = directory / LOG
    holder = LockHolder(pid=os.getpid(), actor=actor, command="iris log salvage", since=iso_time(now))
    with StateLock(directory).hold(holder, timeout), writing(log):
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
        old_log = unused_path(directory / (DAMAGED_PREFIX + file_stamp(now))) if log.exists() else None
        if old_log is not None:
            copy_range(disk, log, 0, log.stat().st_size, old_log)
        if report.sound_in == LOG and report.sound_until.line:
            with open(log, "rb", opener=open_safely) as stream:
                _write_log(directory, disk, islice(committed_lines(stream), report.sound_until.line))
            replaced: tuple[Segment, ...] = ()
        else:
            replaced = _restore_from_archive(directory, disk, report)
        write_head(disk, directory, report.sound_until)
        # The new log begins before these segments, so they are not read any more, even if iris crashes now.
        old_segments = tuple([set_aside(disk, segment, now) for segment in replaced])
    return SalvageReport(
        kept=kept,
        lost=report.last - kept,
        findings=report.findings,
        old_log=old_log,
        old_segments=old_segments,
    )


def _restore_from_archive(directory: Path, disk: Disk, report: VerifyReport) -> tuple[Segment, ...]:
    """Make a log of the valid lines of the last segment that has valid lines. Return the segments that it replaces."""
    chain, end, lines = segments(directory), report.sound_until, None
    files = [segment.file for segment in chain]
    number = files.index(report.sound_in) if report.sound_in in files else len(chain)
    if end.line:
        lines = end.line
    elif end.seq:
        number -= 1  # all lines of the segment before are valid
    if not end.seq:
        _write_log(directory, disk, ())
    else:
        with open_segment(chain[number]) as stream:
            _write_log(directory, disk, islice(stream, lines))
    return chain[number:]


def _write_log(directory: Path, disk: Disk, lines: Iterable[bytes]) -> None:
    with replacing(disk, directory / LOG) as fd:
        for line in lines:
            write_all(disk, fd, line)
