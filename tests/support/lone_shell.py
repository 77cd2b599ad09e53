"""A host that can't start processes, because a limit on their number is reached.

As a program: `lone_shell.py SHELL ARGUMENT...` executes the shell, for which the kernel refuses new processes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import PATIENCE

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FORKS = {"x86_64": (56, 57, 58, 435), "aarch64": (220, 435)}
"""The system calls that start a process: clone, fork, vfork, clone3."""

_ALLOW, _AGAIN = 0x7FFF0000, 0x00050000 | 11  # EAGAIN, as at a limit
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _rules() -> bytes:
    """Return a seccomp filter: the architecture, then the number of the call, then the result."""
    machine = platform.machine()
    refused = FORKS[machine]
    load, equal, give = 0x20, 0x15, 0x06
    rules = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH[machine]), (give, 0, 0, _ALLOW), (load, 0, 0, 0)]
    rules += [(equal, len(refused) - index, 0, number) for index, number in enumerate(refused)]
    rules += [(give, 0, 0, _ALLOW), (give, 0, 0, _AGAIN)]
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)


def main(words: list[str]) -> None:
    rules = ctypes.create_string_buffer(_rules())
    program = _Program((len(rules) - 1) // 8, ctypes.addressof(rules))
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0
    ):
        sys.exit("no filter can be set here")
    os.execv(words[0], ["sh", *words[1:]])


def works() -> bool:
    """Return True if such a shell really can't start processes."""
    words = [sys.executable, "-I", __file__, "/bin/sh", "-c", "printf x; (:); printf y"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE).stdout == "x"


@contextmanager
def alone(tools: Path) -> Iterator[None]:
    """Let the `sh` in this directory start no processes during the block."""
    shell, kept = tools / "sh", tools / "sh.kept"
    path = shutil.which(os.fspath(shell.readlink()))
    shell.rename(kept)
    shell.write_text(f'#!{shutil.which("dash")}\nexec {sys.executable} -I {__file__} {path} "$@"\n')
    shell.chmod(0o755)
    try:
        yield
    finally:
        kept.rename(shell)


if __name__ == "__main__":
    main(sys.argv[1:])
