"""The processes of commands that were told to say their numbers in a file."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

A_LONG_TIME = 60.0


def is_written(path: Path) -> bool:
    """Whether a whole line stands there: a shell makes the file before it writes."""
    return path.exists() and path.read_text().endswith("\n")


def number_in(path: Path) -> int:
    deadline = time.monotonic() + A_LONG_TIME
    while time.monotonic() < deadline:
        if is_written(path):
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + A_LONG_TIME
    while time.monotonic() < deadline:
        if not _lives(pid):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


def _lives(pid: int) -> bool:
    """Whether it runs; one that only waits for its parent to hear of its end doesn't."""
    said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return said.stdout.strip()[:1] not in ("", "Z")
