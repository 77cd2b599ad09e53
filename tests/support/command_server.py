"""Run `iris` commands in processes forked from one that has loaded every module.

Each command is a process that can be killed; forking saves the start of an interpreter. With `die_at` a command kills
itself at its n-th step; there is a step before and after each commit and each call to a worker.

With several test processes one process loads the modules for all of them (see shared_commands.py). It forks a server
for each of them, which forks its commands.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO, TextIOWrapper
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]


def _network() -> str:
    """Return the network namespace of this thread, "" if the system has none."""
    try:
        return os.readlink("/proc/thread-self/ns/net")
    except OSError:
        return ""


_NETWORK = _network()
"""The network namespace of the server and its commands."""
ENVIRON = dict(os.environ)
"""The environment of the server, without changes by tests."""


class CommandServer:
    """The process that forks. It answers one request at a time: while one thread waits, no other starts a command."""

    address = ""
    """The socket of the process that has loaded the modules; if empty, the server loads them itself."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._server: _Server | None = None

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
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def _ask(self, **request: Any) -> int:
        assert _network() == _NETWORK, "a test in a network of its own starts its commands itself"
        with self._lock:
            server = self._server = self._server or (_forked(self.address) if self.address else _started())
            try:
                server.requests.write(json.dumps(request) + "\n")
                server.requests.flush()
                return int(server.answers.readline())
            except BaseException:  # a late answer would look like the next one's
                self._server = None
                os.kill(server.pid, signal.SIGKILL)
                raise


@dataclass(frozen=True)
class _Server:
    """A process that forks commands. It ends at the end of `requests`; `end` closes them and waits for that."""

    pid: int
    requests: TextIO
    answers: TextIO
    end: Callable[[], object]


def _started() -> _Server:
    """Start a process that loads the modules for itself."""
    command = [sys.executable, "-m", __name__]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRON, stdin=pipe, stdout=pipe, text=True)
    assert isinstance(process.stdin, TextIOWrapper)
    assert isinstance(process.stdout, TextIOWrapper)
    return _Server(process.pid, process.stdin, process.stdout, process.communicate)


def _forked(address: str) -> _Server:
    """Let the process at this address fork one."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    answers = connection.makefile("r")
    pid = int(answers.readline())

    def end() -> None:
        connection.shutdown(socket.SHUT_WR)
        answers.read()
        connection.close()

    return _Server(pid, connection.makefile("w"), answers, end)


@cache
def command_server() -> CommandServer:
    """The server that all tests of this process share."""
    made = CommandServer()
    atexit.register(made.close)
    return made


def _load() -> None:
    import paramiko  # noqa: F401,RUF100 - loaded before the first fork, not after each

    import iris_cli
    from iris_cli.cli import tree

    for module in pkgutil.walk_packages(iris_cli.__path__, "iris_cli."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    tree.build(tree.COMMANDS)
    _practise()
    gc.collect()
    gc.freeze()


def _practise() -> None:
    """Run some commands, so that each forked one finds compiled patterns and other caches of the libraries."""
    from iris_cli.cli import app

    with TemporaryDirectory() as directory, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        config = Path(directory, "cluster.yaml")
        config.write_text("cluster: {name: lab}\nworkers: [{id: w0, host: 127.0.0.1}]\n")
        for line in ("launch --no-schedule -- true", "status", "status --json"):
            assert app.run(["--config", str(config), *line.split()]) == 0


def _share(listener: socket.socket) -> None:
    """Fork a server for each connection until stdin is closed."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            listener.close()
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            connection.close()
            print(os.getpid(), flush=True)
            _serve()
            os._exit(0)
        connection.close()


def _serve() -> None:
    """Start the commands that stdin asks for, until it ends."""
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
    _load()
    if sys.argv[1:]:
        _share(socket.socket(fileno=int(sys.argv[1])))
    else:
        _serve()
