"""What the operator said about the background loop: `loop.json`, which a running loop reads again and again."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from iris_cli.journal.codec import decode, encode
from iris_cli.journal.durable import Disk, opened, replace_file
from iris_cli.journal.layout import LOOP_ORDER

_LIMIT = 4096  # bytes


class LoopOrder(Struct, frozen=True, kw_only=True):
    """`stopped`: no loop may run. A loop that began under another `turn` is to end.

    `by` says who gave the order, with which command; `since` is a time as text.
    """

    turn: str = ""
    stopped: bool = False
    by: str = ""
    since: str = ""


def read_loop_order(directory: Path) -> LoopOrder:
    """The order as it is now; if nobody gave one, or if it can't be read, that loops may run."""
    try:
        with opened(directory / LOOP_ORDER, os.O_RDONLY | os.O_NONBLOCK) as fd:
            return decode(LoopOrder, os.read(fd, _LIMIT))
    except (OSError, ValueError):
        return LoopOrder()


def write_loop_order(directory: Path, disk: Disk, order: LoopOrder) -> None:
    """Put it in the place of the one before, durably. Raises OSError."""
    data = encode(order) + b"\n"
    replace_file(disk, directory / LOOP_ORDER, data, alone=False, synced=True)
