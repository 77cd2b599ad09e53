"""Begin an `iris` command in a forked process, which saves the start of an interpreter, and end it like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Any

from tests.support.command_server import command_server

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL


class Forked:
    """A command with those methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = DEVNULL,
        stdout: int = PIPE,
        stderr: int = PIPE,
        text: bool = False,
        session: bool = False,
        terminal: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self.stdout: IO[Any] | None = None
        self.stderr: IO[Any] | None = None
        opened = [os.open(os.devnull, os.O_RDWR)]
        files = [opened[0] if stdin == DEVNULL else stdin]
        for name, given in (("stdout", stdout), ("stderr", stderr)):
            if given == PIPE:
                read, write = os.pipe()
                setattr(self, name, os.fdopen(read, "r" if text else "rb"))
                opened.append(write)
            files.append(opened[-1] if given == PIPE else opened[0] if given == DEVNULL else given)
        try:
            self.pid = command_server().fork(
                words, directory=cwd, env=env, files=files, session=session, terminal=terminal
            )
        finally:
            for number in opened:
                os.close(number)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_raised: object) -> None:
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait()

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = command_server().poll(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline, pause = None if timeout is None else time.monotonic() + timeout, 0.005
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("iris", timeout or 0.0)
            time.sleep(pause)  # other threads use the server
            pause = min(1.5 * pause, 0.1)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Return all output; the text of a stream that is no pipe is None."""
        read: list[Any] = [None, None]

        def drain(place: int, file: IO[Any]) -> None:
            read[place] = file.read()

        files = (self.stdout, self.stderr)
        threads = [Thread(target=drain, args=each, daemon=True) for each in enumerate(files) if each[1]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired("iris", timeout or 0.0)
        self.wait(timeout)
        return read[0], read[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


Process = subprocess.Popen[Any] | Forked
