"""A memory limit that the kernel enforces, and a program that runs into it."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.waiting import until

_LIMIT = 32 << 20
HUNGRY = (sys.executable, "-c", f"x = bytearray({4 * _LIMIT}); print(len(x))")
"""It allocates more than the limit."""


@contextmanager
def no_kills() -> Iterator[None]:
    """Wait until no other test lets the kernel kill a process, and keep them from it: its log is for all of them."""
    with Path(tempfile.gettempdir(), f"iris-test-kills-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def no_recent_kills() -> Iterator[None]:
    """The same, and no line about a kill stands in the log of the last second: the clocks of log and task differ."""
    with no_kills():
        time.sleep(2)
        yield


@contextmanager
def limited_group(name: str) -> Iterator[Path]:
    """A memory control group below this process's own, of version 1 or 2. Skips the test where it can't be created."""
    parent, limit = _memory_group()
    group = parent / f"iris-test-{name}-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(_LIMIT))
        with suppress(OSError):  # without swap accounting there is no such file
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
    """The command that runs `argv` in the group, as the same process."""
    return ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh", *argv)


def _memory_group() -> tuple[Path, str]:
    """The group of this process that limits memory, and the name of its file for the limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
        if not controllers and Path(f"/sys/fs/cgroup{path}/cgroup.subtree_control").exists():
            return Path(f"/sys/fs/cgroup{path}"), "memory.max"
    pytest.skip("no memory controller on this machine")
