"""Results and times of the last cycles, one for each kind of runner (loop, watch, ...), in one small file.

Several invocations may write at the same time and must not lose each other's entries. So an invocation holds a separate
lock, for microseconds, while it reads and writes the file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.journal.durable import Disk, open_safely, opened, replace_file
from iris_cli.journal.layout import HEARTBEAT, HEARTBEAT_LOCK

_LIMIT = 1 << 16  # bytes
_RUNNERS = "runners"
_TRIES = 50  # maximum number of attempts to take the lock
_RETRY_INTERVAL = 0.005  # seconds


def write_heartbeat(
    directory: Path, disk: Disk, heartbeat: Mapping[str, object], runner: str, entry: Mapping[str, object]
) -> None:
    """Record the result `heartbeat` of a cycle. `entry` replaces the entry of this kind of runner. Raises OSError.

    If the lock can't be taken, the file is written without the lock. The next cycles restore lost entries.
    """
    with _locked(directory):
        runners = runners_of(read_heartbeat(directory)) | ({runner: dict(entry)} if runner else {})
        _write(directory, disk, {**heartbeat, **({_RUNNERS: runners} if runners else {})})


def forget_runner(directory: Path, disk: Disk, runner: str) -> None:
    """Delete the entry of a kind of runner that no longer exists. Raises OSError."""
    if runner not in runners_of(read_heartbeat(directory)):
        return
    with _locked(directory):
        stored = read_heartbeat(directory) or {}
        others = {kind: entry for kind, entry in runners_of(stored).items() if kind != runner}
        _write(directory, disk, {**stored, _RUNNERS: others})


def read_heartbeat(directory: Path) -> dict[str, Any] | None:
    """Return the content of the file; None if the file is missing or can't be read."""
    try:
        with opened(directory / HEARTBEAT, os.O_RDONLY | os.O_NONBLOCK) as fd:
            heartbeat = json.loads(os.read(fd, _LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return heartbeat if isinstance(heartbeat, dict) else None


def runners_of(heartbeat: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the last entry of each kind of runner; empty if the file has no entries."""
    kinds = (heartbeat or {}).get(_RUNNERS)
    if not isinstance(kinds, dict):
        return {}
    return {kind: entry for kind, entry in kinds.items() if isinstance(entry, dict)}


def _write(directory: Path, disk: Disk, heartbeat: Mapping[str, object]) -> None:
    data = json.dumps(heartbeat).encode("ascii") + b"\n"
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
                SYSTEM_CLOCK.sleep(_RETRY_INTERVAL)
    try:
        yield
    finally:
        with suppress(OSError):
            os.close(fd)
