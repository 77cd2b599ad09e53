"""Disks that are mounted for one test, in a mount namespace that ends with its process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

CLONE_NEWNS = 0x20000
_REFUSED = 99  # the exit code of a child that can't mount


def on_a_small_disk(directory: Path, attempt: Callable[[], None], *, size: str = "256k") -> None:
    """Call a function in a process in which an empty directory is a disk of that size.

    Skips the test if nothing can be mounted.
    """
    child = os.fork()
    if child == 0:
        try:
            if not _mounted(directory, size):
                os._exit(_REFUSED)
            attempt()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == _REFUSED:
        pytest.skip("nothing can be mounted here (needs root)")
    assert code == 0, "see what it said"


def remount(directory: Path, how: str) -> None:
    """Remount it as `ro` or `rw`."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(directory)], check=True)


def _mounted(directory: Path, size: str) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare") or libc.unshare(CLONE_NEWNS) != 0:
        return False
    commands = (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "iris-test", str(directory)],
    )
    return all(subprocess.run(command, capture_output=True).returncode == 0 for command in commands)
