"""Reading a whole log to say everything that is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from iris_cli.core.dataclass import dataclass, replace
from iris_cli.errors import NotFoundError
from iris_cli.journal.durable import not_readable, open_safely
from iris_cli.journal.head import Head, head_at, read_head
from iris_cli.journal.layout import LOG
from iris_cli.journal.record import START, BadLineError, Header, NewerLogError, Position, decode_line
from iris_cli.journal.scan import Fault, FaultKind, Scan, bounded_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a log is worth.

    `sound_until` is the end of the last record before the first finding; `records` counts what can be read.
    `unfinished` is a last line that never happened: no finding, for the next writer sets it aside.
    """

    records: int
    sound_until: Position
    findings: tuple[Fault, ...]
    unfinished: Fault | None

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def header(self) -> Header | None:
        return self.sound_until.header


def verify(directory: Path) -> Verdict:
    """Read the log from beginning to end, past what is damaged. Takes no lock and changes nothing.

    Raises NotFoundError, and NotWritableError if it can't be read.
    """
    log = directory / LOG
    try:
        head = read_head(directory)  # before the log, which only grows
        with open(log, "rb", opener=open_safely) as stream:
            return _verify(stream, os.fstat(stream.fileno()).st_size, head)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no event log in {directory}", hint="name one with --state-dir"
        ) from None
    except OSError as error:
        raise not_readable(log, error) from error


def _verify(stream: BinaryIO, size: int, head: Head | None) -> Verdict:
    position: Position | None = START
    sound_until: Position | None = None
    unfinished: Fault | None = None
    findings: list[Fault] = []
    records, crc_at_head = 0, ""
    while position is not None:
        stream.seek(position.offset)
        scan = Scan(stream, size, position)
        for record in scan:
            records += 1
            if head is not None and record.seq == head.seq:
                crc_at_head = record.crc
        end, fault, position = scan.position, scan.fault, None
        sound_until = sound_until or end
        if fault is not None and fault.kind is FaultKind.TORN:
            unfinished = fault
        elif fault is not None:
            findings.append(fault)
            position = _next_good(stream, size, end, findings)
    if head is not None:
        findings += _findings_of_head(head, end, crc_at_head)
    return Verdict(
        records=records, sound_until=sound_until or START, findings=tuple(findings), unfinished=unfinished
    )


def _next_good(stream: BinaryIO, size: int, end: Position, findings: list[Fault]) -> Position | None:
    """Where reading can go on behind the bad line at `end`, as if all before were good; None if nowhere.

    Adds a finding for each further line that can't be read.
    """
    stream.seek(end.offset)
    line, offset = end.line, end.offset
    for raw in bounded_lines(stream, size - offset):
        if line > end.line:
            try:
                record = decode_line(raw.removesuffix(b"\n"))
                return replace(end, line=line, offset=offset, seq=record.seq - 1, crc=record.prev)
            except (BadLineError, NewerLogError) as error:
                seq = end.seq + 1 + line - end.line
                fault = Fault(kind=FaultKind.DAMAGED, line=line + 1, offset=offset, seq=seq, what=str(error))
                findings.append(fault)
        line, offset = line + 1, offset + len(raw)
    return None


def _findings_of_head(head: Head, end: Position, crc_at_head: str) -> list[Fault]:
    """What contradicts HEAD. `crc_at_head` is that of the line that HEAD names, '' if it can't be read."""
    kind = FaultKind.DAMAGED
    if head.crc == end.crc and head != head_at(end):
        what = f"HEAD is damaged: it names this line, but not as seq {end.seq} of this log; move HEAD away"
    elif end.header is not None and end.header.cluster_id != head.cluster_id:
        kind, what = FaultKind.FOREIGN, "HEAD belongs to the log of another cluster"
    elif head.seq > end.seq:
        what = f"it was committed, says HEAD, but the log ends at seq {end.seq}"
    elif crc_at_head not in ("", head.crc):
        what = "HEAD names another line than this one"
    else:
        return []
    return [Fault(kind=kind, line=end.line, offset=end.offset, seq=head.seq, what=what)]
