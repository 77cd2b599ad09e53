"""Type a line into a terminal, answer questions, and keep the output."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.terminal import IRIS, start
from tests.support.waiting import PATIENCE

QUESTION = b"[y/N]: "
_OF_THE_SHELL = frozenset("|&;<>()$`*?[~\n")


def typed(
    line: str, directory: Path, env: Mapping[str, str], *, columns: int, answers: Sequence[str] = ()
) -> str:
    """Return the output of a terminal from the typed line to its end; each question takes one answer."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command, *words = shlex.split(line, comments=True)
    is_plain = command == "iris" and not _OF_THE_SHELL & set(line)  # it needs no shell, and is forked
    try:
        process = start((*IRIS, *words) if is_plain else ("/bin/sh", "-c", line), theirs, directory, env)
    finally:
        os.close(theirs)
    try:
        return _watched(ours, line, list(answers)).decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _watched(terminal: int, line: str, answers: list[str]) -> bytes:
    shown, deadline = b"", time.monotonic() + PATIENCE
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{line} does not end; it has shown {shown.decode(errors='replace')}"
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # on Linux: no process has the terminal open
            return shown
        if not more:
            return shown
        shown += more
        if shown.endswith(QUESTION):
            assert answers, f"{line} asks: {shown.decode(errors='replace')}"
            os.write(terminal, f"{answers.pop(0)}\n".encode())
