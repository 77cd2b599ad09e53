"""When the last cycles ran: one time for each kind of runner, in one small file.

Several invocations may write at the same moment: what one of them says of its own kind must not lose what
another one says of its. So the file is read and written under a lock of its own, which is held for microseconds.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.journal.durable import Disk, open_safely, opened, replace_file
from iris_cli.journal.layout import HEARTBEAT, HEARTBEAT_LOCK

_LIMIT = 1 << 16  # bytes
_RUNNERS = "runners"
_TRIES = 50  # at the lock: who has it holds it for microseconds
_BETWEEN = 0.005  # seconds


def write_heartbeat(
    directory: Path, disk: Disk, heartbeat: Mapping[str, object], runner: str, said: Mapping[str, object]
) -> None:
    """Record how a cycle ended; `said` is kept for this kind of runner, and what others said stays.

    Raises OSError. Without the lock it is written all the same: the next cycle of the others repairs what is lost.
    """

    def with_this(kept: dict[str, Any]) -> dict[str, Any]:
        runners = {**runners_of(kept), **({runner: said} if runner else {})}
        return {**heartbeat, **({_RUNNERS: runners} if runners else {})}

    _change(directory, disk, with_this)


def forget_runner(directory: Path, disk: Disk, runner: str) -> None:
    """Remove what a kind of runner said last: there is none of it any more. Raises OSError."""

    def without(kept: dict[str, Any]) -> dict[str, Any]:
        others = {kind: said for kind, said in runners_of(kept).items() if kind != runner}
        return {**kept, _RUNNERS: others}

    if runner in runners_of(read_heartbeat(directory)):
        _change(directory, disk, without)


def read_heartbeat(directory: Path) -> dict[str, Any] | None:
    """What the last cycle wrote; None if there was none, or if it can't be read."""
    try:
        with opened(directory / HEARTBEAT, os.O_RDONLY | os.O_NONBLOCK) as fd:
            heartbeat = json.loads(os.read(fd, _LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return heartbeat if isinstance(heartbeat, dict) else None


def runners_of(heartbeat: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """What each kind of runner said last. One that an older iris wrote has none."""
    kinds = (heartbeat or {}).get(_RUNNERS)
    if not isinstance(kinds, dict):
        return {}
    return {kind: said for kind, said in kinds.items() if isinstance(said, dict)}


def _change(directory: Path, disk: Disk, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with _locked(directory):
        changed = change(read_heartbeat(directory) or {})
        data = json.dumps(changed).encode("ascii") + b"\n"
        replace_file(disk, directory / HEARTBEAT, data, alone=False)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    fd = -1
    with suppress(OSError):
        fd = open_safely(directory / HEARTBEAT_LOCK, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
        for _ in range(_TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                SYSTEM_CLOCK.sleep(_BETWEEN)
    try:
        yield
    finally:
        with suppress(OSError):
            os.close(fd)
