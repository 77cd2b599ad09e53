"""The `iris` of tasks, in a directory like that of a task."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from iris_cli.config.request_reading import read_request
from iris_cli.core.messages.requests import (
    Answer,
    Cancel,
    Logs,
    RegisterEndpoint,
    RemoveEndpoint,
    Request,
    Status,
    Submit,
    Wait,
)
from iris_cli.remote.inside.rendering import task_program
from tests.client.operator_thread import Decide
from tests.support.waiting import PATIENCE, until


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Task:
    """The directory of a task with the program."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "task"
        for name in ("outbox", "inbox"):
            (self.directory / name).mkdir(parents=True)
        self.program = directory / "iris"
        self.program.write_text(task_program())
        self.program.chmod(0o700)
        self.env = {"PATH": os.environ["PATH"], "IRIS_TASK_DIR": str(self.directory)}

    def iris(self, *words: str | bytes, env: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [self.program, *words],
            env={**self.env, **(env or {})},
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def asked(self, *words: str | bytes, env: Mapping[str, str] | None = None) -> Request:
        """Return the request of a command, which gets no answer."""
        process = subprocess.Popen(
            [self.program, *words],
            env={**self.env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        found: list[Path] = []

        def asks() -> bool:
            assert process.poll() is None, process.communicate()
            outbox = self.directory / "outbox"
            found[:] = [path for path in outbox.iterdir() if not path.name.startswith(".")]
            return bool(found)

        try:
            until(asks)
        finally:
            process.kill()
            process.communicate()
        raw = found[0].read_bytes()
        found[0].unlink()
        return read_request(raw)


JOB = {"id": "train/eval", "state": "SUCCEEDED", "why": "", "children": []}
WELL = {
    "id": "train/eval/task-0",
    "state": "SUCCEEDED",
    "worker": "w",
    "exit_code": 0,
    "why": "done\x1b[1m\nä🚀\r",
}
WAITS = {
    "id": "train/eval/task-1",
    "state": "PENDING",
    "display": "RETRYING (1 of 3)",
    "worker": None,
    "exit_code": None,
    "why": "",
}
ENDPOINTS = [
    {"task": "train/task-0", "name": "http", "address": "10.0.0.1", "port": 80, "metadata": {"a.b c": "x y"}}
]
TASKS: list[dict[str, object]] = [{**WELL, "attempt": 0}, {**WAITS, "attempt": None}]


def operator(**states: str) -> Decide:
    """Answer requests: all jobs succeed except those named by the last part of their ids."""

    def decide(request: Request) -> Answer | None:
        match request:
            case Submit():
                return {"job": f"train/{request.job.name}", "created": True}
            case Wait() if states.get(request.job.rpartition("/")[2]) == "RUNNING":
                return None
            case Status() | Wait():
                job = str(request.job or "train")
                state = states.get(job.rpartition("/")[2], "SUCCEEDED")
                return {
                    "job": {**JOB, "id": job, "state": state, "why": f"ä {state}"},
                    "tasks": TASKS,
                    "endpoints": ENDPOINTS,
                }
            case Cancel():
                return {"job": request.job, "cancelled": True}
            case Logs():
                data = b"".join(b"%s %d\n" % (request.stream.encode(), number) for number in range(20_000))
                start = request.offset if request.offset >= 0 else max(0, len(data) + request.offset)
                piece = base64.b64encode(data[start : start + request.limit]).decode()
                return {"offset": start, "size": len(data), "data": piece}
            case RegisterEndpoint():
                return {"name": request.name, "port": request.port}
            case RemoveEndpoint():
                return {"removed": True}
            case _:
                raise AssertionError(request)

    return decide
