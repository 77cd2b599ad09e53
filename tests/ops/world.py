"""A lab with its log on disk, and workers that hold files and can fall silent: for operations without SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.ids import AttemptId, JobId, TaskId, Token, WorkerId
from iris_cli.core.messages.observations import ProbeReport, Silence, SilenceKind, WorkerReport
from iris_cli.journal.log.writer import Writer
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import LogChunk, LogPiece, TaskRunner
from iris_cli.remote.transport import Target
from tests.support import fake_runner
from tests.support.lab import Lab


@dataclass
class Hosts:
    """Stands where the workers would: their files, who is silent, and which files were asked for."""

    files: dict[tuple[str, str], bytes] = field(default_factory=dict)  # by token and stream
    inodes: dict[tuple[str, str], int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    probes: dict[str, ProbeReport] = field(default_factory=dict)
    polls: dict[str, WorkerReport] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # worker and stream
    calls: list[str] = field(default_factory=list)  # the worker of each call for logs
    afterwards: Callable[[], None] = lambda: None  # what happens when pieces of logs have been read

    def pieces(self, target: Target, wanted: Sequence[LogPiece]) -> tuple[LogChunk, ...] | Silence:
        self.calls.append(target.worker)
        self.asked += [(target.worker, piece.stream) for piece in wanted]
        if target.worker in self.silent:
            return silence(target.worker)
        answer = tuple(map(self._piece, wanted))
        self.afterwards()
        return answer

    def _piece(self, piece: LogPiece) -> LogChunk:
        key = (piece.token, piece.stream)
        data = self.files.get(key, b"")
        start = piece.offset if piece.offset >= 0 else max(0, len(data) + piece.offset)
        start = min(start, len(data))
        inode = self.inodes.get(key, 1) if key in self.files else 0
        return LogChunk(data=data[start : start + piece.limit], offset=start, size=len(data), inode=inode)

    def poll(
        self,
        target: Target,
        tokens: Sequence[Token],
        *,
        renew: bool = True,
        open_requests: Sequence[object] = (),
    ) -> WorkerReport | Silence:
        return self.polls.get(target.worker) or silence(target.worker)

    def stop(self, target: Target, stops: Sequence[tuple[Token, float]]) -> WorkerReport | Silence:
        return silence(target.worker)

    def probe(
        self, target: Target, *, first_contact: bool = False, make: bool = True
    ) -> ProbeReport | Silence:
        return self.probes.get(target.worker) or silence(target.worker)


def silence(worker: str) -> Silence:
    return Silence(
        worker=WorkerId(worker), kind=SilenceKind.UNREACHABLE, step="connect", detail="no route", sent=False
    )


@dataclass
class Clock(fake_runner.Clock):
    """Time passes only in `sleep`; `then` is what happens in the world meanwhile."""

    then: Callable[[], None] = lambda: None
    naps: int = 0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.naps += 1
        assert self.naps < 1000, "it waits for ever"
        self.then()


@dataclass
class World:
    """A lab whose log is written to `directory`; `session` sees what was written last."""

    lab: Lab
    directory: Path
    hosts: Hosts = field(default_factory=Hosts)
    clock: Clock = field(default_factory=Clock)
    _writer: Writer | None = None

    def write(self) -> None:
        """Bring the log up to date with the lab."""
        if not self.directory.exists():
            self._state().create("lab")
        with nullcontext(self._writer) if self._writer else self._state().locked("test", 0) as writer:
            for transaction in self.lab.log[writer.seq :]:
                writer.append(transaction.events, at=transaction.at)

    @contextmanager
    def scheduler(self) -> Iterator[None]:
        """Somebody else holds the lock and does the work: what the lab does meanwhile goes into the log."""
        self.write()
        with self._state().locked("iris schedule", 0) as self._writer:
            yield
        self._writer = None

    def session(self) -> Session:
        self.write()
        hosts = tuple(
            HostConfig(worker=worker, connection=host.facts.connection)
            for worker, host in self.lab.hosts.items()
        )
        return Session(
            state=self._state(),
            config=ClusterConfig(path=self.directory / "cluster.yaml", name="lab", hosts=hosts),
            make_runner=lambda _: cast("TaskRunner", self.hosts),
            clock=self.clock,
            command="iris test",
            lock_timeout=0.0,
        )

    def answers(self, worker: str, **otherwise: Any) -> None:
        """The worker answers probes: as the machine in the log, or otherwise."""
        facts = self.lab.hosts[WorkerId(worker)].facts
        report = ProbeReport(
            worker=facts.worker,
            boot_id=facts.boot_id,
            incarnation=facts.incarnation,
            cpus=int(facts.cpu),
            memory=facts.memory,
            disk_free=100 << 30,
            clock=self.clock.now(),
        )
        self.hosts.probes[worker] = replace(report, **otherwise)

    def says(self, task: str, text: str, stream: str = "out", number: int = -1) -> None:
        """A task writes."""
        job, _, index = task.rpartition("/task-")
        token = self.lab.attempt(job, int(index), number).token
        key = (token, stream)
        self.hosts.files[key] = self.hosts.files.get(key, b"") + text.encode()

    def pulls(self, task: str, *, bytes: int | None = None, after: float = 0.0) -> None:  # noqa: A002 - what it counts
        """What a task has written so far, or its first bytes, is pulled, so many seconds after now."""
        job, _, index = task.rpartition("/task-")
        number = len(self.lab.cluster.tasks[TaskId(JobId(job), int(index))].attempts) - 1
        attempt_id = AttemptId(TaskId(JobId(job), int(index)), number)
        logs = self._state().task_logs
        for stream in ("out", "err"):
            key = (self.lab.attempt(job, int(index)).token, stream)
            if data := self.hosts.files.get(key, b"")[:bytes]:
                logs.put(attempt_id, stream, 0, data)
        logs.finish(attempt_id, self.clock.now() + after)

    def _state(self) -> StateDir:
        return StateDir(self.directory, now=self.clock.now, actor="me@laptop")
