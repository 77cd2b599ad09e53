"""Type a line into a terminal, answer questions, and keep the output."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.forked import Forked, Process
from tests.support.waiting import PATIENCE

QUESTION = b"[y/N]: "
_OF_THE_SHELL = frozenset("|&;<>()$`*?[~\n")


def typed(
    line: str, directory: Path, env: Mapping[str, str], *, columns: int, answers: Sequence[str] = ()
) -> str:
    """Return the output of a terminal from the typed line to its end; each question takes one answer."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    try:
        process = _started(line, directory, env, theirs)
    finally:
        os.close(theirs)
    try:
        return _watched(ours, line, list(answers)).decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _started(line: str, directory: Path, env: Mapping[str, str], terminal: int) -> Process:
    """Start a shell for the line. An `iris` command of plain words needs none: it is forked."""
    streams: dict[str, Any] = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    command, *words = shlex.split(line, comments=True)
    if command == "iris" and not _OF_THE_SHELL & set(line):
        return Forked(words, cwd=directory, env=env, terminal=True, **streams)
    made: Process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        cwd=directory,
        env=dict(env),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        **streams,
    )
    return made


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
