"""`HEAD`: the last line that was committed. It may lag behind the log and never leads.

Without it, a damaged last line would look like one that was never finished.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from iris_cli.core.dataclass import dataclass
from iris_cli.journal.durable import Disk, opened, replace_file
from iris_cli.journal.layout import HEAD
from iris_cli.journal.record import Position

_LIMIT = 4096  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`seq` and `crc` of the line, and the log that it is in."""

    seq: int
    crc: str
    cluster_id: str


def read_head(directory: Path) -> Head | None:
    """None if there is none, or only what a power cut may leave of it. Raises OSError."""
    try:
        with opened(directory / HEAD, os.O_RDONLY) as fd:
            entry = json.loads(os.read(fd, _LIMIT))
        head = Head(**entry)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return head if type(head.seq) is int else None


def head_at(position: Position) -> Head | None:
    """What HEAD says when the log is committed up to `position`; None for an empty log."""
    if position.header is None:
        return None
    return Head(seq=position.seq, crc=position.crc, cluster_id=position.header.cluster_id)


def write_head(disk: Disk, directory: Path, position: Position) -> None:
    """Say that the log is committed up to `position`. Raises OSError."""
    head = head_at(position)
    if head is None:
        (directory / HEAD).unlink(missing_ok=True)
    else:
        entry = {"seq": head.seq, "crc": head.crc, "cluster_id": head.cluster_id}
        replace_file(disk, directory / HEAD, json.dumps(entry).encode("ascii") + b"\n")
