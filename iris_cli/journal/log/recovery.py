"""Find the damage of a log, and repair a log before the next append."""

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from iris_cli.clock import file_stamp
from iris_cli.core.units import count
from iris_cli.errors import LogDamagedError
from iris_cli.files import Disk, copy_range, opened, unused_path, write_all
from iris_cli.journal.layout import HEAD, LOG, TORN_PREFIX
from iris_cli.journal.log.file_store import Loaded
from iris_cli.journal.log.head import Head, head_at, write_head
from iris_cli.journal.log.position import Fault, FaultKind


class Damage(Struct, frozen=True, kw_only=True):
    """The reason why a log is not valid as a whole.

    `forgivable`: the operator may accept the loss. `readable`: the part before the damage may be shown. `fault` is the
    invalid line; None if all lines are valid but contradict `HEAD`.
    """

    what: str
    hint: str
    forgivable: bool = False
    readable: bool = True
    fault: Fault | None = None

    def error(self) -> LogDamagedError:
        return LogDamagedError(self.what, hint=self.hint)


def log_messages(warnings: Iterable[str], damage: Damage | None) -> tuple[str, ...]:
    """Return the messages for a reader of the log: its warnings, its damage, the part that was read, and a hint."""
    if damage is None:
        return tuple(warnings)
    read = (
        ("only the lines before the damage were read",)
        if damage.readable and damage.fault is not None
        else ()
    )
    return (*warnings, damage.what, *read, damage.hint)


def damage_of(log: Path, loaded: Loaded) -> Damage | None:
    """Return the damage of a log; None if the log is valid, except for an incomplete last line."""
    fault, end, head = loaded.fault, loaded.end, loaded.head
    place = log.parent / fault.file if fault is not None else log
    if fault is not None and fault.kind is FaultKind.NEWER:
        return Damage(
            what=f"{place} is too new at {fault}", hint=_UPGRADE, readable=end.line > 0, fault=fault
        )
    if fault is not None and fault.kind is FaultKind.EDITED:
        return Damage(what=f"{place} is damaged at {fault}", hint=_RESTORE, fault=fault)
    if fault is not None and fault.kind in (FaultKind.DAMAGED, FaultKind.MISSING):
        return Damage(what=f"{place} is damaged at {fault}", hint=_SALVAGE, fault=fault)
    if head is None:
        return None
    if head.crc == end.crc and head != head_at(end):
        what = f"{log.parent / HEAD} is damaged: it does not match seq {end.seq}, the last line of {LOG}"
        return Damage(
            what=what,
            hint=f"move {HEAD} away and run the command again: a new one is written",
            forgivable=True,
        )
    if end.header is not None and end.header.cluster_id != head.cluster_id:
        return Damage(
            what=f"{log} is the log of another cluster ({end.header.cluster_id:.8}..., HEAD names another)",
            hint="restore the right log, or name its directory with --state-dir",
            readable=False,
        )
    if head.seq > end.seq and fault is not None:
        what = f"{log} is damaged at {fault}, {_committed(head)}"
        return Damage(what=what, hint=_SALVAGE, forgivable=True, fault=fault)
    if head.seq > end.seq:
        what = f"{log} ends at seq {end.seq} (byte {end.offset}), {_committed(head)}: lines are missing"
        return Damage(what=what, hint=_ACCEPT.format(head.seq), forgivable=True)
    if not loaded.head_fits:
        what = f"{log}: line seq {head.seq} is not the committed one ({head.crc:.8})"
        return Damage(what=what, hint=_ACCEPT.format(head.seq), forgivable=True)
    return None


_UPGRADE = "install that iris, or use another directory with --state-dir"
_SALVAGE = "`iris log verify` lists the damage; `iris log salvage` keeps the lines before it"
_RESTORE = "iris log salvage restores the committed lines"
_ACCEPT = "restore a copy of the state directory that has seq {}, or accept the loss: iris log salvage --accept-loss"


def _committed(head: Head) -> str:
    return f"but seq {head.seq} was committed"


def repair(directory: Path, loaded: Loaded, disk: Disk, now: float) -> list[str]:
    """Repair log and HEAD for the next append. Return messages about the repairs. Raises OSError.

    The caller holds the lock, and the operator has accepted any loss. Bytes are moved, not deleted.
    """
    if loaded.head == head_at(loaded.end) and loaded.size == loaded.end.offset:
        return []
    log, end = directory / LOG, loaded.end
    committed = loaded.head.seq if loaded.head else 0
    messages = []
    if loaded.size < end.offset:
        with opened(log, os.O_WRONLY | os.O_APPEND) as fd:
            write_all(disk, fd, b"\n")
            disk.fsync(fd)
        messages.append("restored the newline at the end of the event log")
    if is_torn := loaded.size > end.offset:
        kept = unused_path(directory / (TORN_PREFIX + file_stamp(now)))
        copy_range(disk, log, end.offset, loaded.size, kept)
        messages.append(
            f"moved an unfinished line of an interrupted command out of the event log to {kept.name}"
        )
    if committed < end.seq:
        # Copy the log: after a failed fsync, lines after HEAD may be in memory only, and a later fsync may succeed.
        copy_range(disk, log, 0, end.offset, log)
        lines = count(end.seq - committed, "line")
        messages.append(
            f"updated {HEAD}, which lacked {lines} of an interrupted command"
            if loaded.head
            else f"{HEAD} was missing or damaged: written again from the log"
        )
    elif is_torn:
        with opened(log, os.O_WRONLY) as fd:
            disk.truncate(fd, end.offset)
            disk.fsync(fd)
    if committed > end.seq:
        messages.append(f"accepted the loss of transactions {end.seq + 1} to {committed}")
    if loaded.head != head_at(end):
        write_head(disk, directory, end)  # durably, so that a crash can't bring the older HEAD back
    return messages
