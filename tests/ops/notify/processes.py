"""The processes of commands that were told to say their numbers in a file."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.waiting import until

A_LONG_TIME = 60.0


def is_written(path: Path) -> bool:
    """Whether a whole line stands there: a shell makes the file before it writes."""
    return path.exists() and path.read_text().endswith("\n")


def number_in(path: Path) -> int:
    until(lambda: is_written(path))
    return int(path.read_text())


def until_gone(pid: int) -> None:
    until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    """Whether it runs; one that only waits for its parent to hear of its end doesn't."""
    said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return said.stdout.strip()[:1] not in ("", "Z")
