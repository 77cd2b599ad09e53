"""Run `iris` commands in processes forked from one that has loaded every module.

Each command is a process that can be killed; forking saves the start of an interpreter. With `die_at` a command kills
itself at its n-th step; there is a step before and after each commit and each call to a worker.

A command is in the mount and network namespaces of the thread that starts it.

With several test processes one process loads the modules for all of them (see shared_commands.py). It forks a server
for each of them, which forks its commands.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
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
import termios
from collections.abc import Mapping, Sequence, Set
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, get_native_id
from typing import IO, Any, NoReturn

ROOT = Path(__file__).parents[2]


_NAMESPACES = ("net", "mnt")


def _namespaces() -> dict[str, str]:
    """Return the namespaces of this thread by file; none if the system has none."""
    thread = f"/proc/{os.getpid()}/task/{get_native_id()}/ns"
    with suppress(OSError):
        return {f"{thread}/{kind}": os.readlink(f"{thread}/{kind}") for kind in _NAMESPACES}
    return {}


_OURS = frozenset(_namespaces().values())
"""The namespaces in which this process began."""


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
        nothing = os.open(os.devnull, os.O_RDONLY)
        outputs = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) for path in (out, err)]
        try:
            return self.fork(words, directory=directory, env=env, files=[nothing, *outputs], die_at=die_at)
        finally:
            for number in (nothing, *outputs):
                os.close(number)

    def fork(
        self,
        words: Sequence[str],
        *,
        directory: Path,
        env: Mapping[str, str],
        files: Sequence[int],
        session: bool = False,
        terminal: bool = False,
        die_at: int = 0,
    ) -> int:
        """Start a command with these three files as its streams; returns its process id.

        `session`: in its own session; `terminal`: also with its stdin as the terminal of that session.
        """
        request = {
            "words": [*words],
            "cwd": str(directory),
            "env": dict(env),
            "die_at": die_at,
            "namespaces": _namespaces(),
        }
        found = self._ask(files, session=session or terminal, terminal=terminal, **request)
        assert found is not None
        return found

    def wait(self, pid: int) -> int:
        """The exit code of a started command, negative for a signal."""
        code = self._ask(wait=pid, flags=0)
        assert code is not None
        return code

    def poll(self, pid: int) -> int | None:
        """The exit code of a started command; None if it still runs."""
        return self._ask(wait=pid, flags=os.WNOHANG)

    def close(self) -> None:
        """End the server and every command that still runs."""
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def _ask(self, files: Sequence[int] = (), **request: Any) -> int | None:
        with self._lock:
            server = self._server = self._server or (_forked(self.address) if self.address else _started())
            try:
                if names := request.get("namespaces"):
                    request["namespaces"] = [
                        file for file, name in names.items() if name not in server.namespaces
                    ]
                data = json.dumps(request).encode()
                socket.send_fds(server.connection, [len(data).to_bytes(_HEAD, "big")], files)
                server.connection.sendall(data)
                answer: int | None = json.loads(server.answers.readline())
            except BaseException:  # a late answer would look like the next one's
                self._server = None
                os.kill(server.pid, signal.SIGKILL)
                raise
            return answer


_HEAD, _STREAMS = 4, 3
"""The bytes before each request, which have its length. The streams of a command arrive with them."""


@dataclass(frozen=True)
class _Server:
    """A process that forks commands. It ends with the requests; `end` closes them and waits for that."""

    pid: int
    connection: socket.socket
    answers: IO[str]
    namespaces: Set[str]

    def end(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)
        self.answers.read()
        self.connection.close()


def _started() -> _Server:
    """Start a process that loads the modules for itself."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", __name__, "serve", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRON, pass_fds=[theirs.fileno()])
    _STARTED.append(process)
    return _Server(process.pid, ours, ours.makefile("r"), {*_namespaces().values()})


_STARTED: list[subprocess.Popen[bytes]] = []
"""They are not waited for: they end with their requests."""


def _forked(address: str) -> _Server:
    """Let the process at this address fork one."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    answers = connection.makefile("r")
    return _Server(int(answers.readline()), connection, answers, _OURS)


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
    for names in (tree.COMMANDS, (), *((name,) for name in tree.COMMANDS)):
        tree.parser(names)
    _practise()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # as `iris` does


def _practise() -> None:
    """Run some commands, so that each forked one finds compiled patterns and other caches of the libraries."""
    from iris_cli.cli import app
    from iris_cli.remote.inside.rendering import task_program

    task_program()  # a quarter of a second in each command that probes a worker
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
            connection.sendall(b"%d\n" % os.getpid())
            _serve(connection)
            os._exit(0)
        connection.close()


def _serve(connection: socket.socket) -> None:
    """Start commands as requested, until the other end is closed; then kill those that still run."""
    running = set()
    while True:
        head, files, _, _ = socket.recv_fds(connection, _HEAD, _STREAMS, socket.MSG_WAITALL)
        if len(head) < _HEAD:
            break
        request = json.loads(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        answer: int | None
        if "wait" in request:
            ended, status = os.waitpid(request["wait"], request["flags"])
            running.discard(ended)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        else:
            request["namespaces"] = [os.open(each, os.O_RDONLY) for each in request["namespaces"]]
            files += request["namespaces"]
            answer = os.fork()
            if answer == 0:
                connection.close()
                _become(files=files[:_STREAMS], **request)
            running.add(answer)
        for number in files:
            os.close(number)
        connection.sendall(json.dumps(answer).encode() + b"\n")
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _become(
    words: list[str],
    files: list[int],
    namespaces: list[int],
    cwd: str,
    env: dict[str, str],
    session: bool,
    terminal: bool,
    die_at: int,
) -> NoReturn:
    from iris_cli.cli import app

    code = 70
    try:
        for number in namespaces:
            if ctypes.CDLL(None, use_errno=True).setns(number, 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(number)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        for number, given in enumerate(files):
            os.dup2(given, number)
            os.close(given)
        if session:
            os.setsid()
        if terminal:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a new terminal has no nohup around it
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # As at the start of an interpreter.
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open to the end
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - open to the end
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - open to the end
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
    {"serve": _serve, "share": _share}[sys.argv[1]](socket.socket(fileno=int(sys.argv[2])))
    os._exit(0)
