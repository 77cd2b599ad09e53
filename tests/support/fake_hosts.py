"""Machines in memory: what `fake_runner` talks to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import (
    AttemptReport,
    ChipHolder,
    RemoteState,
    Silence,
    SilenceKind,
    WorkerReport,
)
from iris_cli.remote.output_calls import FilePiece, Version
from iris_cli.remote.task_runner import LogChunk, LogPiece
from iris_cli.remote.transport import Target

S = RemoteState
FINAL_STATES = (S.EXITED, S.CANCELLED, S.NOSTART, S.LOST, S.STOPPED)


class Killed(BaseException):
    """Ends an invocation as SIGKILL would: it doesn't come to a last word."""


@dataclass
class Entry:
    """One attempt's directory, or its tombstone."""

    state: RemoteState
    name: str = ""  # of the task
    exit_code: int | None = None
    cause: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    half: bool = False  # the call that prepared it was cut off
    told_at: float | None = None  # when it was first told to start, and could note that
    starts: int = 0
    outbox: dict[str, bytes] = field(default_factory=dict)
    inbox: dict[str, bytes] = field(default_factory=dict)
    output: bytes = b""
    packed: dict[str, bytes] = field(default_factory=dict)  # by hash

    def ask(self, request: str, op: str, **fields: Any) -> None:
        """Its task asks for something."""
        self.outbox[request] = json.dumps({"v": 1, "op": op, **fields}).encode()

    def told(self, name: str) -> Any:
        """What it was answered: the result, or the message of a refusal."""
        answer = json.loads(self.inbox[name])
        return answer["result"] if answer["ok"] else answer["error"]["message"]


class FileCalls:
    """The calls of the worker protocol that fetch outputs, and what a task has packed, so many bytes at a time.

    They are also the groups of the calls that a runner has.
    """

    hosts: dict[str, Host]
    piece = 64 << 10

    @property
    def outputs(self) -> Self:
        return self

    @property
    def caches(self) -> Self:
        return self

    def pieces(self, target: Target, wanted: Sequence[LogPiece]) -> tuple[LogChunk, ...] | Silence:
        host = self.hosts[target.worker]
        if host.silence is not None:
            return Silence(worker=target.worker, kind=SilenceKind.TIMEOUT, step="output", detail="timeout")
        return tuple(_chunk(host, each) for each in wanted)

    def packed(self, target: Target, token: Token, workspace: str, offset: int) -> FilePiece | Silence:
        host = self.hosts[target.worker]
        host.calls.append("packed")
        host.meanwhile.pop("packed", lambda: None)()
        if (host.silence or host.keeps_packed) is not None:
            return Silence(worker=target.worker, kind=SilenceKind.TIMEOUT, step="output", detail="timeout")
        data = host.tokens[token].packed.get(workspace)
        version = Version(len(data or b""), 0, int(data is not None))
        end = offset + (1 if host.crumbs else self.piece)
        return FilePiece(data=(data or b"")[offset:end], offset=offset, version=version)


def _chunk(host: Host, piece: LogPiece) -> LogChunk:
    data = host.tokens[piece.token].output if piece.token in host.tokens else b""
    start = min(piece.offset, len(data)) if piece.offset >= 0 else max(0, len(data) + piece.offset)
    return LogChunk(data=data[start : start + piece.limit], offset=start, size=len(data), inode=1)


@dataclass
class Host:
    """One machine: what it holds, and what goes wrong there."""

    name: str
    now: Callable[[], float]
    rack: str = "r"  # as the configuration has it
    boot_id: str = "boot-1"
    incarnation: str = ""
    tokens: dict[Token, Entry] = field(default_factory=dict)
    silence: SilenceKind | None = None
    sent: bool = False  # whether what is not answered was sent nevertheless
    refuses: str = ""  # the cause
    workspaces: set[str] = field(default_factory=set)
    shipped: list[tuple[str, int]] = field(default_factory=list)  # hash, and bytes that were sent
    refuses_workspaces: str = ""  # the cause
    is_being_shipped: bool = False  # by somebody else
    cache_ages: list[float] = field(default_factory=list)  # for how long what was asked for wasn't used
    keeps_packed: bool | None = None  # what was packed there can't be fetched
    crumbs: bool = False  # or comes a byte at a time
    unkillable: bool = False
    never_starts: bool = False  # what is prepared stays so
    notes: bool = True  # when it was told to start something
    holders: list[ChipHolder] = field(default_factory=list)  # processes that hold chips
    network_disk: bool = False
    cut: str = ""  # the next `prepare` ends after this step: made, prepared
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    beforehand: dict[str, Callable[[], None]] = field(default_factory=dict)  # before a call does anything
    box_is_stuck: bool = False  # what is answered doesn't go from the outbox
    calls: list[str] = field(default_factory=list)
    renewals: int = 0  # polls that renewed leases
    clock_ahead: float = 0.0
    reaped: list[Token] = field(default_factory=list)
    busy_files: set[Token] = field(default_factory=set)  # can't be removed yet

    def of(self, task: str) -> Entry:
        """The newest attempt here of a task, or of the first task of a job."""
        names = (task, f"{task}/task-0")
        return [entry for entry in self.tokens.values() if entry.name in names][-1]

    def exits(self, task: str, code: int = 0) -> None:
        entry = self.of(task)
        entry.state, entry.exit_code, entry.ended_at = S.EXITED, code, self.now()

    def reboot(self) -> None:
        self.boot_id += "+"
        for entry in self.tokens.values():
            entry.state = entry.state if entry.state in FINAL_STATES else S.LOST

    @property
    def running(self) -> list[str]:
        return [entry.name for entry in self.tokens.values() if entry.state is S.RUNNING]

    def start(self, entry: Entry) -> None:
        entry.state, entry.began_at = S.RUNNING, self.now()
        entry.starts += 1

    def report(self, tokens: Sequence[Token]) -> WorkerReport:
        return WorkerReport(
            worker=WorkerId(self.name),
            boot_id=self.boot_id,
            incarnation=self.incarnation,
            clock=float(int(self.now() + self.clock_ahead)),
            attempts=tuple(self._report(token) for token in tokens),
            asking=tuple(token for token in tokens if self._left(token)),
        )

    def _left(self, token: Token) -> bool:
        """What has ended says in every answer that it left requests."""
        entry = self.tokens.get(token)
        return entry is not None and entry.state in FINAL_STATES and bool(entry.outbox)

    def _report(self, token: Token) -> AttemptReport:
        entry = self.tokens.get(token, Entry(S.ABSENT))
        since = entry.told_at if entry.state is S.PREPARED else entry.began_at
        return AttemptReport(
            token=token,
            state=entry.state,
            exit_code=entry.exit_code,
            cause=entry.cause,
            started_ago=None if since is None else self.now() - since,
            ended_ago=None if entry.ended_at is None else self.now() - entry.ended_at,
        )
