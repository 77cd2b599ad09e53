"""The small iris of tasks, in a directory like that of a task and in each shell."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from iris_cli.config.request_reading import read_request
from iris_cli.core.requests import Request
from iris_cli.remote.worker_script import task_program
from tests.support.local_transport import tools_of

PATIENCE = 120.0


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Task:
    """A task's directory and a shell to run the program in."""

    def __init__(self, directory: Path, shell: str) -> None:
        self.directory = directory / "task"
        for name in ("outbox", "inbox"):
            (self.directory / name).mkdir(parents=True)
        tools = tools_of(shell, directory / "tools")
        self.program = directory / "iris"
        self.program.write_text(task_program())
        self.shell = str(tools / "sh")
        self.env = {"PATH": f"{tools}:{os.environ['PATH']}", "IRIS_TASK_DIR": str(self.directory)}

    def iris(self, *words: str | bytes, env: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [self.shell, self.program, *words],
            env={**self.env, **(env or {})},
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def asked(self, *words: str | bytes, env: Mapping[str, str] | None = None) -> Request:
        """The request that these words become. Nobody answers."""
        process = subprocess.Popen(
            [self.shell, self.program, *words],
            env={**self.env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, deadline = self.directory / "outbox", time.monotonic() + PATIENCE
        try:
            while not (found := [path for path in out.iterdir() if not path.name.startswith(".")]):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "it asks for nothing"
        finally:
            process.kill()
            process.communicate()
        raw = found[0].read_bytes()
        found[0].unlink()
        return read_request(raw)
