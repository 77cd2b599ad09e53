"""`iris` commands in processes forked from one that has everything loaded: many cost little, and each can be killed.

With `die_at` an invocation kills itself at its n-th step. Steps lie before and after each commit and each call to a
worker.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from tests.support.site import Site

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Invocation:
    """One command that was started."""

    pid: int
    said: Path
    _ask: Callable[..., int]

    def kill(self) -> None:
        """SIGKILL, whatever it is doing. It stays until it is waited for, so its number is nobody else's."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        return self._ask(wait=self.pid)

    def done(self, code: int = 0) -> str:
        """What it said. It has to end with that exit code."""
        found = self.wait()
        said = self.said.read_text()
        assert found == code, (found, said)
        return said


class Invocations:
    """Starts invocations at a site."""

    def __init__(self, site: Site) -> None:
        self._directory = site.directory
        self._numbers = count()
        inherited = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        self._press = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env={**inherited, "HOME": str(site.directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *words: str, die_at: int = 0) -> Invocation:
        said = self._directory / f"said-{next(self._numbers)}"
        pid = self._ask(words=words, cwd=str(self._directory), said=str(said), die_at=die_at)
        return Invocation(pid, said, self._ask)

    def run(self, *words: str) -> str:
        return self.start(*words).done()

    def close(self) -> None:
        """Ends all that were started, too."""
        assert self._press.stdin is not None
        self._press.stdin.close()
        self._press.wait()

    def _ask(self, **request: Any) -> int:
        assert self._press.stdin is not None
        assert self._press.stdout is not None
        self._press.stdin.write(json.dumps(request) + "\n")
        self._press.stdin.flush()
        return int(self._press.stdout.readline())


def _serve() -> None:
    """Fork an invocation for each line that asks for one; wait for the one that another line names."""
    import paramiko  # noqa: F401,RUF100 - loaded before the first fork, not after each

    from iris_cli.cli import app, tree
    from iris_cli.remote import ssh_config, ssh_dial  # noqa: F401,RUF100 - likewise

    tree.build((*app.COMMANDS, *app.SETUP_COMMANDS))
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


def _become(words: list[str], cwd: str, said: str, die_at: int) -> int:
    from iris_cli.cli.app import run

    code = 70
    try:
        os.chdir(cwd)
        silence, output = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY | os.O_CREAT)
        os.dup2(silence, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if die_at:
            _die_at(die_at)
        code = run(words)
        sys.stdout.flush()
    finally:
        os._exit(code)


def _die_at(last: int) -> None:
    from iris_cli.journal.writer import Writer
    from iris_cli.remote.task_runner import TaskRunner

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
    stepping(TaskRunner, "_ask")


if __name__ == "__main__":
    _serve()
