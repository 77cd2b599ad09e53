"""A host that can't start processes, because a limit on their number is reached.

As a program: `lone_shell.py PROC SHELL ARGUMENT...` executes the shell; the kernel refuses it new processes. If the
directory PROC is not /proc, it gets the process of the shell and those of attempts.
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
from contextlib import contextmanager, suppress
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


def main(proc: Path, words: list[str]) -> None:
    if proc != Path("/proc"):
        _list_few(proc)
    rules = ctypes.create_string_buffer(_rules())
    program = _Program((len(rules) - 1) // 8, ctypes.addressof(rules))
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0
    ):
        sys.exit("no filter can be set here")
    os.execv(words[0], ["sh", *words[1:]])


def _list_few(proc: Path) -> None:
    """Without external commands a shell takes seconds for all processes of a busy machine."""
    proc.mkdir(exist_ok=True)
    for old in proc.iterdir():
        if old.name.isdigit() and old.is_symlink():
            old.unlink()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):  # it has ended, or belongs to another user
            if pid == os.getpid() or b"IRIS_ATTEMPT_TOKEN=" in Path(f"/proc/{pid}/environ").read_bytes():
                (proc / str(pid)).symlink_to(f"/proc/{pid}")
    for name in ("self", "stat", "sys", "uptime"):
        with suppress(FileExistsError):
            (proc / name).symlink_to(f"/proc/{name}")


def works() -> bool:
    """Return True if such a shell really can't start processes."""
    words = [sys.executable, "-I", __file__, "/proc", "/bin/sh", "-c", "printf x; (:); printf y"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE).stdout == "x"


@contextmanager
def alone(tools: Path, proc: Path = Path("/proc")) -> Iterator[None]:
    """Let the `sh` in this directory start no processes during the block; it fills `proc`, if that is not /proc."""
    shell, kept = tools / "sh", tools / "sh.kept"
    path = shutil.which(os.fspath(shell.readlink()))
    shell.rename(kept)
    shell.write_text(f'#!{shutil.which("dash")}\nexec {sys.executable} -I {__file__} {proc} {path} "$@"\n')
    shell.chmod(0o755)
    try:
        yield
    finally:
        kept.rename(shell)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
