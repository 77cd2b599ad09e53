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


class Since:
    """A point in time. Searching only the processes started since then is several times as fast."""

    def __init__(self) -> None:
        self._last, self._started = _last_pid(), _processes_started()

    def pids(self) -> set[int]:
        """Return the later pids. The kernel counts up to a limit, and then begins again."""
        found = pids()
        limit = int(Path("/proc/sys/kernel/pid_max").read_text())
        if not self._last or _processes_started() - self._started > limit // 2:
            return found
        span = (_last_pid() - self._last) % limit
        return {pid for pid in found if (pid - self._last) % limit <= span}


def pids() -> set[int]:
    """Return all processes."""
    return {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}


def _last_pid() -> int:
    """Return the pid of the last process that was started; 0 if the system does not tell."""
    with suppress(OSError):
        return int(Path("/proc/loadavg").read_text().split()[-1])
    return 0


def _processes_started() -> int:
    """Return the number of processes and threads that were started since boot; 0 if the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("processes "):
                return int(line.split()[1])
    return 0


def strays(directory: Path, since: Since | None = None) -> dict[int, str]:
    """Return the live processes with their working directory or a path in their environment below a directory: command
    line and working directory of each. Excludes this process, its ancestors, and processes from before `since`."""
    if not Path("/proc/self").exists():
        return {}
    found = {}
    for pid in sorted((since.pids() if since else pids()) - _ancestry()):
        with suppress(OSError):  # it has ended, or belongs to another user
            if _belongs(pid, os.fsencode(directory)):
                words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
                found[pid] = f"{os.fsdecode(b' '.join(words))}in {os.readlink(f'/proc/{pid}/cwd')}"
    return found


def end_strays(directory: Path, since: Since | None = None) -> None:
    """Kill all of them."""
    for _ in range(_ROUNDS):
        found = strays(directory, since)
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


def parents(since: Since | None = None) -> Iterator[tuple[int, int]]:
    """Return the parent of each process that has begun since then.

    `ps`, which is slower, is for systems without /proc. It lists all processes.
    """
    if not Path("/proc/self").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            child, parent = map(int, line.split())
            yield child, parent
        return
    for pid in since.pids() if since else pids():
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
