"""Workspace transfers: to workers that lack them, and from tasks that packed one for a child job."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import BinaryIO

from iris_cli.core import AttemptState, Cluster, Job, Worker, Workspace, count, format_memory
from iris_cli.core.ids import AttemptId, Token, WorkerId
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.errors import NotWritableError, WorkspaceGoneError
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import Fetched, Seen
from iris_cli.ops.cycle.calls import Call, not_sent
from iris_cli.ops.cycle.orders import attempt_of
from iris_cli.ops.progress import Far
from iris_cli.ops.session import Session
from iris_cli.ops.workspace.archive import OddTarError, TarCheck

SHIPPED_AT_ONCE = 16
"""Most workers that receive a workspace at once: they share the uplink, and other calls need room."""
_PIECE = 256 << 10

Cargo = tuple[WorkerId, str]
"""A worker, and the hash of the workspace that it lacks."""


class Shipping:
    """Workspaces that workers reported as lacking, and the state of their transfers in this cycle."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._progress = Progress(session)
        self._wanted: dict[Cargo, dict[Token, AttemptId]] = {}  # attempts that wait for it
        self._under_way: set[Cargo] = set()
        self._done: set[Cargo] = set()  # in this cycle, with any result

    def begin(self) -> None:
        """Begin a new cycle: failed transfers may be retried. Transfers under way continue."""
        self._done.clear()
        self._wanted = {cargo: who for cargo, who in self._wanted.items() if cargo in self._under_way}

    def holds_up(self, worker: WorkerId, job: Job) -> bool:
        """Return True if attempts of this job wait for their workspace on the worker."""
        return job.workspace is not None and (worker, job.workspace.hash) in self._wanted

    def lacking(self, cluster: Cluster, call: Call, seen: WorkerReport) -> dict[Token, AttemptId]:
        """Record the workspaces that a worker lacks. Return the attempts that wait for them."""
        absent = {report.token for report in seen.attempts if report.state is RemoteState.ABSENT}
        waiting = {}
        for token, attempt_id in call.known.attempts.items():
            workspace = cluster.jobs[attempt_id.task.job].workspace
            if token in absent and attempt_id in call.starts and workspace and workspace.hash in seen.lacking:
                self._wanted.setdefault((call.worker, workspace.hash), {})[token] = attempt_id
                waiting[token] = attempt_id
        return waiting

    def calls(self, cluster: Cluster) -> Iterator[Call]:
        """Yield the next transfers, while there is room."""
        for cargo, who in self._wanted.items():
            if len(self._under_way) >= SHIPPED_AT_ONCE:
                return
            worker = cluster.workers.get(cargo[0])
            if cargo in self._done or cargo in self._under_way or worker is None:
                continue
            waiting = {token: each for token, each in who.items() if _waits(cluster, each, token)}
            if not waiting:
                self._done.add(cargo)
                continue
            self._under_way.add(cargo)
            workspace = cluster.jobs[next(iter(waiting.values())).task.job].workspace
            assert workspace is not None
            act = partial(self._ship, worker, workspace, list(waiting))
            yield Call(known=observe.known_of(cluster, worker.id), act=act, ships=workspace.hash)

    def answered(self, call: Call, seen: Seen) -> dict[Token, AttemptId]:
        """Record the result of a transfer. Return the attempts that no longer wait for it, sent or failed."""
        cargo = (call.worker, call.ships)
        self._under_way.discard(cargo)
        self._done.add(cargo)
        if isinstance(seen, WorkerReport) and call.ships in seen.lacking:
            there = {report.token for report in seen.attempts if report.state is RemoteState.ABSENT}
            if there:
                return {}  # another invocation is sending it: wait until the next cycle
        return self._wanted.pop(cargo, {})

    def _ship(self, worker: Worker, workspace: Workspace, tokens: list[Token]) -> Seen:
        """Send a workspace to a worker. Runs in its own thread."""
        from iris_cli.remote.task_runner import Shipment

        session = self._session
        try:
            file = session.state.workspaces.open(workspace.hash)
        except WorkspaceGoneError as error:
            return not_sent(worker.id, "workspace", error)
        with file:
            size = os.fstat(file.fileno()).st_size
            shipment = Shipment(
                hash=workspace.hash,
                size=workspace.size,
                packed_size=size,
                chunks=lambda: self._progress.of(workspace, size, file),
                limit=session.limits.workspace_size,
            )
            return session.runner.ship(
                session.target(worker),
                shipment,
                tokens,
                boot_id=worker.boot_id,
                incarnation=worker.incarnation,
            )


class Progress:
    """Progress of the transfers. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = Lock()
        self._sending = 0  # number of workers being sent to
        self._total = self._sent = 0  # bytes since the last idle moment
        self._name = ""

    def of(self, workspace: Workspace, size: int, file: BinaryIO) -> Iterator[bytes]:
        """Yield a file in pieces; a piece counts as sent when the next one is requested."""
        self._begin(size, workspace)
        try:
            with self._session.progress(self._how_far):
                file.seek(0)
                while piece := file.read(_PIECE):
                    yield piece
                    with self._lock:
                        self._sent += len(piece)
        finally:
            with self._lock:
                self._sending -= 1

    def _begin(self, size: int, workspace: Workspace) -> None:
        with self._lock:
            if not self._sending:
                self._total = self._sent = 0
            self._sending += 1
            self._total += size
            self._name = workspace.name or "a workspace"

    def _how_far(self) -> Far:
        return f"sending {self._name} to {count(self._sending, 'worker')}", self._sent, self._total, "bytes"


def _waits(cluster: Cluster, attempt_id: AttemptId, token: Token) -> bool:
    attempt = attempt_of(cluster, attempt_id)
    return attempt is not None and attempt.token == token and attempt.state is AttemptState.ASSIGNED


FETCHED_AT_ONCE = 4
"""Most fetches at a time: other calls need room."""

_GZIP = 31  # zlib: the header and trailer of gzip
_CHUNK = 1 << 20
_LEAST = 64 << 10  # minimum bytes per piece
_SLOWEST = 256 << 10  # minimum bytes per second on average
_START = 120.0  # seconds granted in addition: a busy worker, a call that had to wait


class _SilentError(Exception):
    def __init__(self, silence: Silence) -> None:
        super().__init__(silence.detail)
        self.silence = silence


class _UnfitError(Exception):
    """The worker's file is not the requested workspace; the message says why."""


def fetch(session: Session, worker: Worker, token: Token, wanted: Workspace) -> Fetched | Silence:
    """Fetch a workspace from a task's worker. Runs in its own thread. An interrupted fetch stores nothing."""
    problem = ""
    try:
        if not session.state.workspaces.has(wanted.hash):
            session.state.workspaces.put(_checked(_unpacked(_packed(session, worker, token, wanted)), wanted))
    except (_UnfitError, OddTarError) as error:
        problem = f"can't fetch its workspace: {error}"
    except _SilentError as error:
        return error.silence
    except NotWritableError as error:
        return not_sent(worker.id, "fetch", error)
    return Fetched(worker=worker.id, boot_id=worker.boot_id, incarnation=worker.incarnation, problem=problem)


def _packed(session: Session, worker: Worker, token: Token, wanted: Workspace) -> Iterator[bytes]:
    """Yield the worker's file in pieces: at most as many bytes as its size at the start."""
    target, offset, begun = session.target(worker), 0, session.clock.monotonic()
    size: int | None = None
    name = f"fetching {wanted.name or 'a workspace'}"
    with session.progress(lambda: (name, offset, size or 0, "bytes")):
        while size is None or offset < size:
            piece = session.runner.outputs.packed(target, token, wanted.hash, offset)
            if isinstance(piece, Silence):
                raise _SilentError(piece)
            if not piece.version.inode:
                raise _UnfitError("not a regular file, or missing")
            size = size or piece.version.size
            if size > wanted.size + (wanted.size >> 8) + _CHUNK:  # more than gzip adds to any content
                raise _UnfitError(f"{format_memory(size)}, expected {format_memory(wanted.size)}")
            if len(piece.data) < max(1, min(_LEAST, size - offset)):  # tiny pieces would take days
                raise _UnfitError("it is truncated")
            offset += len(piece.data)
            if session.clock.monotonic() - begun > _START + offset / _SLOWEST:
                raise _UnfitError("the transfer is too slow")
            yield piece.data


def _unpacked(packed: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        for data in packed:
            while data:
                yield unpacker.decompress(data, _CHUNK)
                data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise _UnfitError(f"it is damaged ({error})") from error
    yield unpacker.flush()
    if not unpacker.eof or unpacker.unused_data:
        raise _UnfitError("it is damaged (wrong end)")


def _checked(chunks: Iterator[bytes], wanted: Workspace) -> Iterator[bytes]:
    """Yield the chunks, and raise _UnfitError before the archive counts as complete if the content is wrong."""
    digest, size, check = sha256(), 0, TarCheck()
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        if size > wanted.size:
            raise _UnfitError(f"it unpacks to more than {format_memory(wanted.size)}")
        check.feed(chunk)
        yield chunk
    if (digest.hexdigest(), size) != (wanted.hash, wanted.size):
        raise _UnfitError("its content has changed")
    check.end()
