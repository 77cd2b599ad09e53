"""A worker on this machine: the shell library in a real shell with real processes, and a home in tmp_path."""

from __future__ import annotations

import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import AttemptReport, ProbeReport, RemoteState, Silence, WorkerReport
from iris_cli.core.model.worker import Connection
from iris_cli.remote.output_calls import LogPiece
from iris_cli.remote.task_runner import LaunchRequest, Shipment, TaskRunner
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_script import HostPaths
from tests.support.local_transport import LocalTransport
from tests.support.strays import Since, end_strays, pids, read_proc
from tests.support.waiting import PATIENCE, until

FINAL = frozenset(
    {RemoteState.EXITED, RemoteState.CANCELLED, RemoteState.NOSTART, RemoteState.STOPPED, RemoteState.LOST}
)

_UNSEEN = 0.3
"""Seconds until an attempt is polled again even if its directory has not changed; half as many more each time."""


@dataclass(eq=False)
class WorkerHost:
    """A worker with one shell, used by the product's calls."""

    directory: Path
    tools: Path
    env: dict[str, str] = field(default_factory=dict)
    paths: HostPaths = field(default_factory=HostPaths)
    remote_dir: str = "~/.iris"
    tokens: list[Token] = field(default_factory=list)
    _made: Since = field(default_factory=Since)

    def __post_init__(self) -> None:
        self.transport = LocalTransport(self.directory / "home", self.tools, self.env)
        self.runner = TaskRunner(self.transport, "c1", paths=self.paths)
        self.target = Target(
            worker=WorkerId("w0"), connection=Connection(host="here", remote_dir=self.remote_dir)
        )

    @property
    def root(self) -> Path:
        return self.directory / "home" / self.remote_dir.removeprefix("~/") / "c1/w0"

    def attempt_dir(self, token: Token) -> Path:
        return self.root / "a" / token

    def secrets(self, token: Token) -> list[Path]:
        """Return the files with variables of an attempt that have not been emptied."""
        return [path for path in self.attempt_dir(token).glob("**/env*") if path.stat().st_size]

    def probe(self) -> ProbeReport:
        answer = self.runner.probe(self.target)
        assert isinstance(answer, ProbeReport), answer
        self.boot_id, self.incarnation = answer.boot_id, answer.incarnation
        self.containment = answer.containment
        return answer

    def request(self, *argv: str, **settings: object) -> LaunchRequest:
        token = Token(secrets.token_hex(16))
        self.tokens.append(token)
        return LaunchRequest(**{"token": token, "argv": argv, "env": {}} | settings)  # type: ignore[arg-type]  # tests may name any field

    def prepare(self, *requests: LaunchRequest, go: bool = False) -> tuple[AttemptReport, ...]:
        return reports(
            self.runner.prepare(
                self.target, requests, boot_id=self.boot_id, incarnation=self.incarnation, go=go
            )
        )

    def ship(self, shipment: Shipment, *tokens: Token) -> WorkerReport | Silence:
        """Upload a packed workspace for attempts that wait for it."""
        return self.runner.ship(
            self.target, shipment, tokens, boot_id=self.boot_id, incarnation=self.incarnation
        )

    def go(self, *tokens: Token) -> tuple[AttemptReport, ...]:
        return reports(
            self.runner.go(self.target, tokens, boot_id=self.boot_id, incarnation=self.incarnation)
        )

    def launch(self, *argv: str, **settings: object) -> Token:
        """Start an attempt; its state can be any."""
        request = self.request(*argv, **settings)
        self.prepare(request, go=True)
        return request.token

    def running(self, *argv: str, **settings: object) -> Token:
        """Start an attempt and wait until its program runs, not only its wrapper."""
        request = self.request(*argv, **settings)
        (report,) = self.prepare(request, go=True)
        if report.state is not RemoteState.RUNNING:
            self.wait(request.token, {RemoteState.RUNNING})
        self.wait_for_program(request.token)
        return request.token

    def all_running(self, count: int) -> list[Token]:
        """Start several attempts that sleep; wait like `running`."""
        requests = [self.request("sleep", "1000") for _ in range(count)]
        self.prepare(*requests, go=True)
        tokens = [request.token for request in requests]
        self.wait_for_all(tokens, {RemoteState.RUNNING})
        for token in tokens:
            self.wait_for_program(token)
        return tokens

    def wait_for_program(self, token: Token) -> None:
        """Wait until the program of an attempt runs, not only its wrapper."""
        run = str(self.attempt_dir(token) / "run")
        until(lambda: any(words and run not in words for words in map(command_line, marked(token))))

    def poll(self, *tokens: Token, renew: bool = True) -> tuple[AttemptReport, ...]:
        return reports(self.runner.poll(self.target, tokens, renew=renew))

    def state(self, token: Token) -> RemoteState:
        return self.poll(token)[0].state

    def stop(self, token: Token, grace: float = 5.0) -> AttemptReport:
        return reports(self.runner.stop(self.target, [(token, grace)]))[0]

    def stopped(self, token: Token, grace: float = 5.0) -> AttemptReport:
        """Stop an attempt; wait until that is proven, or it has ended by itself."""
        states = {RemoteState.STOPPED, RemoteState.EXITED, RemoteState.NOSTART}
        report = self.stop(token, grace)
        return report if report.state in states else self.wait(token, states)

    def wait(
        self, token: Token, states: Iterable[RemoteState] = FINAL, *, renew: bool = True
    ) -> AttemptReport:
        """Poll until the attempt is in one of the states."""
        return self.wait_for_all([token], states, renew=renew)[0]

    def ended(self, *argv: str, **settings: object) -> AttemptReport:
        """Run an attempt to its end."""
        return self.wait(self.launch(*argv, **settings))

    def all_ended(self, *requests: LaunchRequest) -> list[AttemptReport]:
        """Run several attempts concurrently to their ends."""
        self.prepare(*requests, go=True)
        return self.wait_for_all([request.token for request in requests])

    def wait_for_all(
        self, tokens: Sequence[Token], states: Iterable[RemoteState] = FINAL, *, renew: bool = True
    ) -> list[AttemptReport]:
        """Poll until each of these attempts is in one of the states, after changes of their directories that can lead
        there, and sometimes without. A poll takes as much CPU time as the awaited step.
        """
        wanted, polled = set(states), list[AttemptReport]()
        seen, due, unseen = list[Traces](), time.monotonic() + _UNSEEN, _UNSEEN

        def are_there() -> bool:
            nonlocal seen, due, unseen
            found, began = [self._traces(token) for token in tokens], time.monotonic()
            if began < due and (found == seen or any(each.precedes(wanted) for each in found)):
                return False
            unseen = min(1.5 * unseen, 2.0) if found == seen else _UNSEEN
            polled[:] = self.poll(*tokens, renew=renew)
            now = time.monotonic()
            seen, due = found, now + max(unseen, 4 * (now - began))
            return all(report.state in wanted for report in polled)

        until(are_there, lambda: polled)
        return polled

    def _traces(self, token: Token) -> Traces:
        try:
            names = frozenset(os.listdir(self.attempt_dir(token)))
        except OSError:  # missing, or not a directory
            names = frozenset[str]()
        stoppers = {name.split(".")[4] for name in names if name.startswith("stop.run.")}
        wrappers, written = set[str](), self.attempt_dir(token) / ("pid" if "pid" in names else "setup.pid")
        with suppress(OSError, IndexError):
            wrappers |= {written.read_text().split()[0]} if written.is_file() else set()  # it may be a pipe
        return Traces(names, _living(wrappers), _living(stoppers))

    def reaped(self, *tokens: Token) -> set[Token]:
        """Reap these attempts; return those without files."""
        answer = self.runner.reap(self.target, tokens)
        assert not isinstance(answer, Silence), answer
        return set(answer.tokens)

    def usage(self, *tokens: Token) -> dict[Token, int]:
        """Return the disk usage of each of these in bytes."""
        answer = self.runner.usage(self.target, tokens)
        assert not isinstance(answer, Silence), answer
        return dict(answer.sizes)

    def stubborn(self) -> Token:
        """Start an attempt, and wait until it ignores SIGTERM."""
        token = self.running("sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 1; done')
        until(lambda: self.output(token) == b"ready\n")
        return token

    def output(self, token: Token, stream: str = "out") -> bytes:
        """Return all output of an attempt, by the product's call."""
        data = b""
        while True:
            wanted = [LogPiece(token=token, stream=stream, offset=len(data), limit=1 << 18)]
            answer = self.runner.pieces(self.target, wanted)
            assert not isinstance(answer, Silence), answer
            (chunk,) = answer
            data += chunk.data
            if len(data) >= chunk.size:
                return data

    def wrapper(self, token: Token) -> int:
        """Return the pid in the file `pid`."""
        return int((self.attempt_dir(token) / "pid").read_text().split()[0])

    def clean_up(self) -> None:
        """End all processes that a test has left."""
        end_strays(self.directory, self._made)
        for token in self.tokens:
            self._remove_group(token)

    def _remove_group(self, token: Token) -> None:
        """Remove the control group of an attempt whose wrapper was killed."""
        named = self.attempt_dir(token) / "group"
        group = Path(named.read_text().strip()) if named.is_file() else None
        if group is None or group.name != f"iris-{token}":
            return
        for _ in range(100):
            try:
                group.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # killed processes take a moment to end
                time.sleep(0.02)


@dataclass(frozen=True)
class Traces:
    """The traces of an attempt that change with its progress: its file names, and its live wrapper and stopper."""

    names: frozenset[str]
    wrappers: frozenset[str]
    stoppers: frozenset[str]

    def precedes(self, wanted: Set[RemoteState]) -> bool:
        """Return True if the attempt is probably still in another state than these. A task can forge its files."""
        if self.stoppers:
            return RemoteState.STOPPING not in wanted
        if not self.wrappers:
            return False
        if "pid" not in self.names:
            return "ready" not in self.names and RemoteState.PREPARING not in wanted
        begun = any(name.startswith("begin.") for name in self.names)
        return (RemoteState.RUNNING if begun else RemoteState.LAUNCHING) not in wanted


def _living(pids: Set[str]) -> frozenset[str]:
    return frozenset(pid for pid in pids if pid.isdigit() and is_alive(int(pid)))


def reports(answer: WorkerReport | Silence) -> tuple[AttemptReport, ...]:
    assert isinstance(answer, WorkerReport), answer
    return answer.attempts


def marked(token: Token) -> set[int]:
    """Return the live processes with an attempt's marker, found without the product's code."""
    return {pid for pid in pids() if is_marked(pid, token)}


def is_marked(pid: int, token: Token) -> bool:
    """Return True if the process lives and has an attempt's marker."""
    try:
        environ = read_proc(pid, b"environ")
    except OSError:
        return False
    needle = f"IRIS_ATTEMPT_TOKEN={token}".encode()
    return needle in environ and needle in environ.split(b"\0")


def is_alive(pid: int) -> bool:
    """Return True if a process runs. A zombie does not."""
    try:
        text = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(") ")[2][0] not in "ZX"


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process; empty if it has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def start_ticks(pid: int) -> str:
    return Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(") ")[2].split()[19]


def kill(pid: int) -> None:
    """Send SIGKILL if the process still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def until_gone(token: Token) -> None:
    """Wait until no process has the marker: a wrapper that has recorded the end is about to exit."""
    until(lambda: not marked(token))


def pids_in(path: Path) -> list[int]:
    """Return the pids that a task wrote to a file, one per line; the last line may be incomplete."""
    return [int(line) for line in re.findall(r"(\d+)\n", path.read_text())] if path.exists() else []


def at_once(actions: Sequence[Callable[[], object]]) -> list[BaseException]:
    """Call all functions at the same time, each in a thread. Return the exceptions they raised."""
    barrier = threading.Barrier(len(actions))
    failures: list[BaseException] = []

    def act(action: Callable[[], object]) -> None:
        try:
            barrier.wait(PATIENCE)
            action()
        except BaseException as error:  # noqa: BLE001,RUF100 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=act, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    return failures
