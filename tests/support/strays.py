"""Processes that tests have started and not ended, found by their directory, without the product's code."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROUNDS = 500
"""Number of searches for processes that have not ended, or that these have started."""


def strays(directory: Path) -> dict[int, str]:
    """Return the live processes with their working directory or a path in their environment below a directory: command
    line and working directory of each. Excludes this process and its ancestors."""
    if not Path("/proc/self").exists():
        return {}
    found = {}
    for pid in sorted({int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - _ancestry()):
        with suppress(OSError):  # it has ended, or belongs to another user
            if _belongs(pid, os.fsencode(directory)):
                words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
                found[pid] = f"{os.fsdecode(b' '.join(words))}in {os.readlink(f'/proc/{pid}/cwd')}"
    return found


def end_strays(directory: Path) -> None:
    """Kill all of them."""
    for _ in range(_ROUNDS):
        found = strays(directory)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.01)


def _belongs(pid: int, directory: bytes) -> bool:
    if (os.readlink(b"/proc/%d/cwd" % pid) + b"/").startswith(directory + b"/"):
        return True
    return directory + b"/" in read_proc(pid, b"environ")


def read_proc(pid: int, name: bytes) -> bytes:
    """Return a file of a process. A search reads hundreds of them, and pathlib takes twice the time."""
    file = os.open(b"/proc/%d/%s" % (pid, name), os.O_RDONLY)
    try:
        found = b""
        while piece := os.read(file, 1 << 17):
            found += piece
        return found
    finally:
        os.close(file)


def parents() -> Iterator[tuple[int, int]]:
    """Return the parent of each process. `ps`, which is slower, is for systems without /proc."""
    if not Path("/proc/self").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            child, parent = map(int, line.split())
            yield child, parent
        return
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        with suppress(OSError):  # it has ended
            yield pid, _parent_of(pid)


def _parent_of(pid: int) -> int:
    return int(read_proc(pid, b"stat").rpartition(b") ")[2].split(maxsplit=2)[1])


def _ancestry() -> set[int]:
    pid, found = os.getpid(), set()
    while pid:
        found.add(pid)
        pid = _parent_of(pid)
    return found
