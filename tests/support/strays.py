"""What tests have started and not ended, found by the directory it belongs to, without any of the product's code."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROUNDS = 500
"""How often to look again for what has not gone yet, and for what it started before it went."""


def strays(directory: Path) -> dict[int, str]:
    """The live processes that work below a directory, or whose environment names something below it: what each
    is and where it works. Neither this process nor those that it was started by."""
    if not Path("/proc/self").exists():
        return {}
    found = {}
    for pid in sorted({int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - _ancestry()):
        with suppress(OSError):  # it has ended, or is somebody else's
            if _belongs(pid, os.fsencode(directory)):
                words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
                found[pid] = f"{os.fsdecode(b' '.join(words))}in {os.readlink(f'/proc/{pid}/cwd')}"
    return found


def end_strays(directory: Path) -> None:
    """End all of them: as a machine does that is switched off."""
    for _ in range(_ROUNDS):
        found = strays(directory)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.01)


def _belongs(pid: int, directory: bytes) -> bool:
    place = os.readlink(f"/proc/{pid}/cwd".encode()) + b"/"
    return place.startswith(directory + b"/") or directory + b"/" in Path(f"/proc/{pid}/environ").read_bytes()


def parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent. `ps` is slower: it is for systems without /proc."""
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
    stat = Path("/proc", str(pid), "stat").read_text(errors="replace")
    return int(stat.rpartition(") ")[2].split()[1])


def _ancestry() -> set[int]:
    pid, found = os.getpid(), set()
    while pid:
        found.add(pid)
        pid = _parent_of(pid)
    return found
