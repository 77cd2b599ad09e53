"""Run `iris` commands in processes forked from one that has loaded every module.

Each command is a process that can be killed; forking saves the start of an interpreter. With `die_at` a command kills
itself at its n-th step; there is a step before and after each commit and each call to a worker.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).parents[2]


def _network() -> str:
    """Return the network namespace of this thread, "" if the system has none."""
    try:
        return os.readlink("/proc/thread-self/ns/net")
    except OSError:
        return ""


_NETWORK = _network()
"""The network namespace of the server and its commands."""
_ENVIRON = dict(os.environ)
"""The environment of the server, without changes by tests."""


class CommandServer:
    """The process that forks. It answers one request at a time: while one thread waits, no other starts a command."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def start(
        self,
        words: tuple[str, ...],
        *,
        directory: Path,
        env: Mapping[str, str],
        out: Path,
        err: Path,
        die_at: int = 0,
    ) -> int:
        """Start a command; returns its process id. `out` and `err` are created; they may be the same file."""
        return self._ask(
            words=words, cwd=str(directory), env=dict(env), out=str(out), err=str(err), die_at=die_at
        )

    def wait(self, pid: int) -> int:
        """The exit code of a started command, negative for a signal."""
        return self._ask(wait=pid)

    def close(self) -> None:
        """End the server and every command that still runs."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()

    def _ask(self, **request: Any) -> int:
        assert _network() == _NETWORK, "a test in a network of its own starts its commands itself"
        with self._lock:
            process = self._process = self._process or self._begin()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                return int(process.stdout.readline())
            except BaseException:  # a late answer would look like the next one's
                self._process = None
                process.kill()
                raise

    @staticmethod
    def _begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", __name__]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env=_ENVIRON, stdin=pipe, stdout=pipe, text=True)


@cache
def command_server() -> CommandServer:
    """The server that all tests of this process share."""
    made = CommandServer()
    atexit.register(made.close)
    return made


def _serve() -> None:
    import paramiko  # noqa: F401,RUF100 - loaded before the first fork, not after each

    import iris_cli
    from iris_cli.cli import tree

    for module in pkgutil.walk_packages(iris_cli.__path__, "iris_cli."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    tree.build(tree.COMMANDS)
    gc.freeze()
    running = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            running.discard(request["wait"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork() or _become(**request)
            running.add(answer)
        print(answer, flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _become(words: list[str], cwd: str, env: dict[str, str], out: str, err: str, die_at: int) -> int:
    from iris_cli.cli import app

    code = 70
    try:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        for number, name, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, out, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            (2, err, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ):
            opened = os.open(name, flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        if die_at:
            _die_at(die_at)
        sys.argv = [str(ROOT / "iris_cli" / "__main__.py"), *words]
        app.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_at(last: int) -> None:
    from iris_cli.journal.log.writer import Writer
    from iris_cli.remote.worker_calls import WorkerCalls

    steps, lock = count(1), Lock()

    def step() -> None:
        with lock:
            if next(steps) == last:
                os.kill(os.getpid(), signal.SIGKILL)

    def stepping(owner: type, name: str) -> None:
        act = getattr(owner, name)

        @functools.wraps(act)
        def stepped(*words: Any, **options: Any) -> Any:
            step()
            result = act(*words, **options)
            step()
            return result

        setattr(owner, name, stepped)

    stepping(Writer, "append")
    stepping(WorkerCalls, "ask")


if __name__ == "__main__":
    _serve()
