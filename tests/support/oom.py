"""A memory limit that the kernel enforces, and a program that exceeds it."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.waiting import until

_LIMIT = 32 << 20
HUNGRY = (sys.executable, "-c", f"x = bytearray({4 * _LIMIT}); print(len(x))")
"""A program that allocates more than the limit."""


@contextmanager
def no_kills() -> Iterator[None]:
    """Exclude other tests with OOM kills, also those of another run, as all share the kernel log."""
    with Path("/tmp", f"iris-test-kills-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def no_recent_kills() -> Iterator[None]:
    """The same, after a second without lines about kills in the log: its clock differs from that of tasks."""
    with no_kills():
        time.sleep(2)
        yield


@contextmanager
def limited_group(name: str) -> Iterator[Path]:
    """Yield a memory control group of version 1 or 2. Skips the test if it can't be created."""
    parent, limit = _memory_group()
    group = parent / f"iris-test-{name}-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(_LIMIT))
        with suppress(OSError):  # the file exists only with swap accounting
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        pytest.skip(f"no memory control group can be created: {error}")
    try:
        with no_kills():
            yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def inside(group: Path, *argv: str) -> tuple[str, ...]:
    """Return a command that moves itself into the group and executes `argv`."""
    return ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh", *argv)


def _memory_group() -> tuple[Path, str]:
    """Return the memory group of this process, and the name of its file for the limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
        if not controllers and Path(f"/sys/fs/cgroup{path}/cgroup.subtree_control").exists():
            return Path(f"/sys/fs/cgroup{path}"), "memory.max"
    pytest.skip("no memory controller on this machine")
