"""Hosts in memory for `fake_runner`."""

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


def silence_of(worker: WorkerId, kind: SilenceKind, *, sent: bool = True) -> Silence:
    """Return the silence of a worker, in the words of SSH."""
    if kind is SilenceKind.AUTH:
        detail = f"{worker} rejected user 'me' with key ssh-ed25519 SHA256:4xv0Vq2mJ6WkzXb7yN1cUj0sQ5rTtYpLhGfEdCbA981"
        hint = "append the public key to ~me/.ssh/authorized_keys on the host, "
        hint += "or correct ssh.user or ssh.key in cluster.yaml"
        return Silence(worker=worker, kind=kind, step="authentication", detail=detail, hint=hint, sent=sent)
    detail = "no route to host" if kind is SilenceKind.UNREACHABLE else kind.value.replace("_", " ")
    return Silence(worker=worker, kind=kind, step="connect", detail=detail, sent=sent)


class Killed(BaseException):
    """Ends an invocation like SIGKILL: no handler runs."""


@dataclass
class Entry:
    """The directory of an attempt, or its tombstone."""

    state: RemoteState
    name: str = ""  # of the task
    exit_code: int | None = None
    cause: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    half: bool = False  # the call that prepared it was interrupted
    told_at: float | None = None  # time of the first `go` that could be recorded
    starts: int = 0
    outbox: dict[str, bytes] = field(default_factory=dict)
    inbox: dict[str, bytes] = field(default_factory=dict)
    output: bytes = b""
    packed: dict[str, bytes] = field(default_factory=dict)  # by hash

    def ask(self, request: str, op: str, **fields: Any) -> None:
        """Add a request of its task."""
        self.outbox[request] = json.dumps({"v": 1, "op": op, **fields}).encode()

    def told(self, name: str) -> Any:
        """Return the answer to a request: the result, or the error message."""
        answer = json.loads(self.inbox[name])
        return answer["result"] if answer["ok"] else answer["error"]["message"]


class FileCalls:
    """The calls of the worker protocol that fetch outputs, and what a task has packed, in pieces.

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
        host.chunks_read += len(wanted)
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
    """A host: its attempts, and its faults."""

    name: str
    now: Callable[[], float]
    rack: str = "r"  # as configured
    boot_id: str = "boot-1"
    incarnation: str = ""
    tokens: dict[Token, Entry] = field(default_factory=dict)
    silence: SilenceKind | None = None
    sent: bool = False  # if a call has no answer: True if it was sent
    refuses: str = ""  # the cause
    workspaces: set[str] = field(default_factory=set)
    shipped: list[tuple[str, int]] = field(default_factory=list)  # hash and bytes sent
    refuses_workspaces: str = ""  # the cause
    is_being_shipped: bool = False  # by another process
    cache_ages: list[float] = field(default_factory=list)  # `unused_for` of the last call
    keeps_packed: bool | None = None  # packed workspaces can't be fetched
    crumbs: bool = False  # or are sent byte by byte
    unkillable: bool = False
    never_starts: bool = False  # prepared attempts do not start
    notes: bool = True  # times of `go` calls
    holders: list[ChipHolder] = field(default_factory=list)  # processes that hold chips
    network_disk: bool = False
    cut: str = ""  # the next `prepare` is interrupted after this step: made, prepared
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    beforehand: dict[str, Callable[[], None]] = field(
        default_factory=dict
    )  # called at the beginning of each call
    box_is_stuck: bool = False  # answered requests stay in the outbox
    calls: list[str] = field(default_factory=list)
    renewals: int = 0  # number of polls that renewed leases
    clock_ahead: float = 0.0
    reaped: list[Token] = field(default_factory=list)
    chunks_read: int = 0  # of logs
    busy_files: set[Token] = field(default_factory=set)  # attempts whose files can't be removed yet

    def of(self, task: str) -> Entry:
        """Return the newest attempt of a task, or of the first task of a job, on this host."""
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
        """Return True if the attempt has ended and left requests."""
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
