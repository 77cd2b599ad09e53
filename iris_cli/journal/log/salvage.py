"""Making a damaged log usable again: the part before the damage goes on, the old file is kept beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from msgspec import Struct

from iris_cli.errors import LogDamagedError
from iris_cli.journal.access import check_writable
from iris_cli.journal.durable import (
    DISK,
    Disk,
    copy_range,
    open_safely,
    opened,
    refusing,
    sync_directory,
    unused,
    write_all,
)
from iris_cli.journal.holder import Holder
from iris_cli.journal.layout import DAMAGED_PREFIX, LOG
from iris_cli.journal.log.archive import Segment, segments, unpacked
from iris_cli.journal.log.compact import set_aside
from iris_cli.journal.log.head import write_head
from iris_cli.journal.log.position import Fault, FaultKind
from iris_cli.journal.log.scan import committed_lines
from iris_cli.journal.log.timestamps import file_stamp, iso_time
from iris_cli.journal.log.verify import Verdict, verify


class SalvageReport(Struct, frozen=True, kw_only=True):
    """What became of a log. `kept` and `lost` count transactions: lost ones stand at or behind the first damage.

    Some of them may be readable, but mean nothing without what is missing. `old_log` is the whole file as it was, if
    there was one; without `findings` the log was sound, and nothing was done. `old_segments` are no longer read.
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
    """Let the log end before its first damage, and keep all of the old one as `events.jsonl.damaged-<time>`.

    `replayed`: what can't have happened counts as damage, too. Line ends that another program changed are restored.
    Where the archive is damaged, what is sound of that segment becomes the log.
    Raises LockedError, NotWritableError, NotFoundError, and LogDamagedError for a log that is not damaged, but
    too new or another cluster's.
    """
    from iris_cli.journal.lock import StateLock  # filelock is slow to import

    with refusing(directory):
        check_writable(directory)
    log = directory / LOG
    holder = Holder(pid=os.getpid(), actor=actor, command="iris log salvage", since=iso_time(now))
    with StateLock(directory).hold(holder, timeout), refusing(log):
        verdict = verify(directory, replayed=replayed)
        _refuse_others(log, verdict)
        kept = verdict.sound_until.seq
        if verdict.ok:
            return SalvageReport(kept=kept, lost=0, findings=(), old_log=None)
        old_log = unused(directory / (DAMAGED_PREFIX + file_stamp(now))) if log.exists() else None
        if old_log is not None:
            copy_range(disk, log, 0, log.stat().st_size, old_log)
            sync_directory(disk, directory)  # BEFORE the log is replaced: the old one has a name that stays
        if verdict.sound_in == LOG and verdict.sound_until.line:
            with open(log, "rb", opener=open_safely) as stream:
                _write_log(directory, disk, islice(committed_lines(stream), verdict.sound_until.line))
            gone: tuple[Segment, ...] = ()
        else:
            gone = _bring_back(directory, disk, verdict)
        write_head(disk, directory, verdict.sound_until)
        # AFTER: the log begins before these, so that nobody reads them.
        old_segments = tuple([set_aside(disk, segment, now) for segment in gone])
    return SalvageReport(
        kept=kept,
        lost=verdict.last - kept,
        findings=verdict.findings,
        old_log=old_log,
        old_segments=old_segments,
    )


def _refuse_others(log: Path, verdict: Verdict) -> None:
    for fault in verdict.findings:
        if fault.kind is FaultKind.NEWER:
            raise LogDamagedError(f"{log.parent / fault.file} is too new, {fault}", hint="install that iris")
        if fault.kind is FaultKind.FOREIGN:
            raise LogDamagedError(f"{log}: {fault.what}", hint="restore the right log")


def _bring_back(directory: Path, disk: Disk, verdict: Verdict) -> tuple[Segment, ...]:
    """Make the log of what is sound in the last segment that has any of it; which segments that makes void."""
    chain, end = segments(directory), verdict.sound_until
    number, lines = _last_sound(chain, verdict)
    if not end.seq:
        _write_log(directory, disk, ())
    else:
        with unpacked(chain[number]) as stream:
            _write_log(directory, disk, islice(stream, lines))
    return chain[number:]


def _write_log(directory: Path, disk: Disk, lines: Iterable[bytes]) -> None:
    """Durably replace the log by these lines."""
    draft = directory / f"{LOG}.tmp"
    with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        for line in lines:
            write_all(disk, fd, line)
        disk.fsync(fd)
    disk.rename(draft, directory / LOG)
    sync_directory(disk, directory)


def _last_sound(chain: tuple[Segment, ...], verdict: Verdict) -> tuple[int, int | None]:
    """The number of that segment, and how many of its lines are sound (None: all). Names alone may deceive."""
    end = verdict.sound_until
    number = next(
        (each for each, segment in enumerate(chain) if segment.file == verdict.sound_in), len(chain)
    )
    return (number, end.line) if end.line or not end.seq else (number - 1, None)
