"""The `iris` of tasks, in a directory like that of a task."""

from __future__ import annotations

import atexit
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
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
from tests.support.worker_host import is_alive


class Ran(NamedTuple):
    code: int
    out: str
    err: str


_SERVER = """
import base64, json, math, os, re, secrets, signal, sys, time, typing
with open(sys.argv[1], encoding="utf-8") as file:
    program = compile(file.read(), sys.argv[1], "exec")
for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        status = os.waitpid(asked["wait"], 0)[1]
        answer = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    else:
        answer = os.fork()
    if answer or "wait" in asked:
        print(answer, flush=True)
        continue
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, name in enumerate((os.devnull, asked["out"], asked["err"])):
        opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = asked["words"]
    code = 70
    try:
        exec(program, {"__name__": "__main__"})
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""
"""Runs the program in processes forked from one that has compiled it: a start takes 80 ms of CPU time."""


class _Server:
    """An interpreter with the flags of the program's first lines."""

    def __init__(self) -> None:
        self._place = TemporaryDirectory()
        program = Path(self._place.name) / "iris"
        program.write_text(task_program())
        command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _SERVER, str(program)]
        # Neither its directory nor its environment is that of a test, whose leftovers are killed.
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd="/", env={})
        self._lock = Lock()
        atexit.register(self._close)

    def ask(self, **request: object) -> int:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def _close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._place.cleanup()


_server = cache(_Server)


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
        """Run a command in a forked process."""
        with TemporaryDirectory() as place:
            code = _server().ask(wait=self._fork(words, env, place))
            out, err = (Path(place, name).read_bytes().decode() for name in ("out", "err"))
        return Ran(code, out, err)

    def executed(self, *words: str | bytes, env: Mapping[str, str] | None = None) -> Ran:
        """Run a command as a task does: the file is executed."""
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
        found: list[Path] = []

        def asks() -> bool:
            assert is_alive(pid), Path(place, "err").read_text()
            outbox = self.directory / "outbox"
            found[:] = [path for path in outbox.iterdir() if not path.name.startswith(".")]
            return bool(found)

        with TemporaryDirectory() as place:
            pid = self._fork(words, env, place)
            try:
                until(asks)
            finally:
                os.kill(pid, signal.SIGKILL)
                _server().ask(wait=pid)
        raw = found[0].read_bytes()
        found[0].unlink()
        return read_request(raw)

    def _fork(self, words: Sequence[str | bytes], env: Mapping[str, str] | None, place: str) -> int:
        return _server().ask(
            words=[str(self.program), *map(os.fsdecode, words)],
            env={**self.env, **(env or {})},
            directory=os.getcwd(),
            out=f"{place}/out",
            err=f"{place}/err",
        )


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


@cache
def _log(stream: str) -> bytes:
    return b"".join(b"%s %d\n" % (stream.encode(), number) for number in range(20_000))


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
                data = _log(request.stream)
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
