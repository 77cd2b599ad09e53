"""Making a damaged log usable again: the part before the damage goes on, the old file is kept beside it."""

from __future__ import annotations

import os
from pathlib import Path

from iris_cli.core.dataclass import dataclass
from iris_cli.errors import LogDamagedError
from iris_cli.journal.access import check_writable
from iris_cli.journal.durable import DISK, Disk, copy_range, refusing, replace_by_copy, unused
from iris_cli.journal.head import write_head
from iris_cli.journal.holder import Holder
from iris_cli.journal.layout import DAMAGED_PREFIX, LOG
from iris_cli.journal.scan import Fault, FaultKind
from iris_cli.journal.timestamps import file_stamp, iso_time
from iris_cli.journal.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageReport:
    """What became of a log. `kept` and `lost` count records: lost ones stand behind the first damage.

    They can be read, but mean nothing without what is missing. `old_log` is the whole file as it was; None if
    the log was sound, and nothing was done.
    """

    kept: int
    lost: int
    findings: tuple[Fault, ...]
    old_log: Path | None


def salvage(
    directory: Path, *, now: float, actor: str, timeout: float = 10.0, disk: Disk = DISK
) -> SalvageReport:
    """Let the log end before its first damage, and keep all of the old one as `events.jsonl.damaged-<time>`.

    Raises LockedError, NotWritableError, NotFoundError, and LogDamagedError for a log that is not damaged, but
    too new or another cluster's.
    """
    from iris_cli.journal.lock import hold_lock  # filelock is slow to import

    with refusing(directory):
        check_writable(directory)
    log = directory / LOG
    holder = Holder(pid=os.getpid(), actor=actor, command="iris log salvage", since=iso_time(now))
    with hold_lock(directory, holder, timeout), refusing(log):
        verdict = verify(directory)
        kept = verdict.sound_until.line
        for fault in verdict.findings:
            if fault.kind is FaultKind.NEWER:
                raise LogDamagedError(f"{log} is too new, {fault}", hint="install that iris")
            if fault.kind is FaultKind.FOREIGN:
                raise LogDamagedError(f"{log}: {fault.what}", hint="put the log back that belongs here")
        if verdict.ok:
            return SalvageReport(kept=kept, lost=0, findings=(), old_log=None)
        old_log = unused(directory / (DAMAGED_PREFIX + file_stamp(now)))
        copy_range(disk, log, 0, log.stat().st_size, old_log)
        replace_by_copy(disk, log, verdict.sound_until.offset)
        write_head(disk, directory, verdict.sound_until)
    return SalvageReport(kept=kept, lost=verdict.records - kept, findings=verdict.findings, old_log=old_log)
