"""Reading a whole log to say everything that is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from iris_cli.errors import NotFoundError
from iris_cli.journal.durable import not_readable
from iris_cli.journal.head import Head, read_head
from iris_cli.journal.layout import LOG
from iris_cli.journal.record import START, BadLineError, Header, NewerLogError, Position, decode_line
from iris_cli.journal.scan import Fault, FaultKind, Scan, bounded_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a log is worth.

    `sound_until` is the end of the last record before the first finding, `records` counts all that can be read,
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
        with open(os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            return _verify(stream, os.fstat(stream.fileno()).st_size, head)
    except FileNotFoundError:
        raise NotFoundError(f"there is no event log in {directory}", hint="name one with --state-dir") from None
    except OSError as error:
        raise not_readable(log, error) from error


def _verify(stream: BinaryIO, size: int, head: Head | None) -> Verdict:
    findings: list[Fault] = []
    scan = Scan(stream, size)
    records = sum(1 for _ in scan)
    sound_until, crcs = scan.position, ...
