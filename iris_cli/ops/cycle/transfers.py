"""Transfers of workspaces: to workers that lack a workspace, and from tasks that packed a workspace for a child job."""

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
from iris_cli.ops.cycle.answers import Observation, SilentError, WorkspaceFetch, answered
from iris_cli.ops.cycle.calls import Call, local_silence
from iris_cli.ops.session import ProgressState, Session
from iris_cli.ops.workspace.archive import ArchiveError, TarCheck

MAX_SHIPMENTS = 16
"""Maximum number of workers that receive a workspace at a time. They share the uplink, and other calls need threads."""
_PIECE = 256 << 10  # bytes

Delivery = tuple[WorkerId, str]
"""A worker, and the hash of the workspace that it lacks."""
MAX_FETCHES = 4  # maximum number of fetches at a time, because other calls need threads
_GZIP = 31  # zlib's `wbits` for data with gzip's header and trailer
_CHUNK = 1 << 20  # bytes
_MIN_PIECE = 64 << 10  # bytes
_MIN_SPEED = 256 << 10  # bytes per second on average
_EXTRA_TIME = 120.0  # additional seconds for a busy worker and for calls that had to wait


class Shipping:
    """Transfers of workspaces that workers reported as missing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = Lock()  # for the progress, which the threads of the transfers change
        self._sending = 0  # number of workers that are being sent a workspace
        self._total = self._sent = 0  # bytes of transfers since `_sending` was last 0
        self._name = ""
        self._wanted: dict[Delivery, dict[Token, AttemptId]] = {}  # the attempts that wait for each delivery
        self._open: set[Delivery] = set()
        self._done: set[Delivery] = set()  # deliveries that ended in this cycle, successful or not

    def begin(self) -> None:
        """Begin a new cycle, in which failed transfers may be retried. Open transfers continue."""
        self._done.clear()
        self._wanted = {each: attempts for each, attempts in self._wanted.items() if each in self._open}

    def must_wait(self, worker: WorkerId, job: Job) -> bool:
        """Return True if the worker lacks the job's workspace, so that attempts must wait for its transfer."""
        return job.workspace is not None and (worker, job.workspace.hash) in self._wanted

    def record_missing(self, cluster: Cluster, call: Call, report: WorkerReport) -> dict[Token, AttemptId]:
        """Record the workspaces that a worker lacks according to its report. Return the attempts that need them."""
        waiting_attempts = {}
        for each in report.attempts:
            attempt_id = call.context.attempts.get(each.token)
            if each.state is not RemoteState.ABSENT or attempt_id is None or attempt_id not in call.starts:
                continue
            workspace = cluster.jobs[attempt_id.task.job].workspace
            if workspace is not None and workspace.hash in report.lacking:
                self._wanted.setdefault((call.worker, workspace.hash), {})[each.token] = attempt_id
                waiting_attempts[each.token] = attempt_id
        return waiting_attempts

    def calls(self, cluster: Cluster) -> Iterator[Call]:
        """Yield the calls of the next transfers, until MAX_SHIPMENTS are open."""
        for delivery, attempts in self._wanted.items():
            if len(self._open) >= MAX_SHIPMENTS:
                return
            worker = cluster.workers.get(delivery[0])
            if delivery in self._done or delivery in self._open or worker is None:
                continue
            waiting_attempts = {
                token: each
                for token, each in attempts.items()
                if (attempt := cluster.find_attempt(each, token)) is not None
                and attempt.state is AttemptState.ASSIGNED
            }
            if not waiting_attempts:
                self._done.add(delivery)
                continue
            self._open.add(delivery)
            workspace = cluster.jobs[next(iter(waiting_attempts.values())).task.job].workspace
            assert workspace is not None
            act = partial(self._ship, worker, workspace, list(waiting_attempts))
            yield Call(context=observe.call_context(cluster, worker.id), act=act, ships=workspace.hash)

    def end_shipment(self, call: Call, observation: Observation) -> dict[Token, AttemptId]:
        """Record the end of a transfer, successful or not. Return the attempts that waited for the transfer."""
        delivery = (call.worker, call.ships)
        self._open.discard(delivery)
        self._done.add(delivery)
        reports = observation.attempts if isinstance(observation, WorkerReport) else ()
        is_missing = isinstance(observation, WorkerReport) and call.ships in observation.lacking
        if is_missing and any(report.state is RemoteState.ABSENT for report in reports):
            return {}  # retry in the next cycle, because another invocation is sending the workspace
        return self._wanted.pop(delivery, {})

    def _ship(self, worker: Worker, workspace: Workspace, tokens: list[Token]) -> Observation:
        """Send a workspace to a worker. Runs in its own thread."""
        from iris_cli.remote.task_runner import Shipment

        session = self._session
        try:
            file = session.state.workspaces.open(workspace.hash)
        except WorkspaceGoneError as error:
            return local_silence(worker.id, "workspace", error)
        with file:
            size = os.fstat(file.fileno()).st_size
            shipment = Shipment(
                hash=workspace.hash,
                size=workspace.size,
                packed_size=size,
                chunks=lambda: self.chunks(workspace, size, file),
                limit=session.limits.workspace_size,
            )
            return session.runner.ship(
                session.target(worker),
                shipment,
                tokens,
                boot_id=worker.boot_id,
                incarnation=worker.incarnation,
            )

    def chunks(self, workspace: Workspace, size: int, file: BinaryIO) -> Iterator[bytes]:
        """Yield the file of a workspace in pieces. A piece counts as sent when the caller requests the next piece."""
        with self._lock:
            if not self._sending:
                self._total = self._sent = 0
            self._sending += 1
            self._total += size
            self._name = workspace.name or "a workspace"
        try:
            with self._session.progress(self._progress):
                file.seek(0)
                while piece := file.read(_PIECE):
                    yield piece
                    with self._lock:
                        self._sent += len(piece)
        finally:
            with self._lock:
                self._sending -= 1

    def _progress(self) -> ProgressState:
        return f"sending {self._name} to {count(self._sending, 'worker')}", self._sent, self._total, "bytes"


def fetch(session: Session, worker: Worker, token: Token, wanted: Workspace) -> WorkspaceFetch | Silence:
    """Fetch a workspace from a task's worker, in a separate thread. An interrupted fetch stores nothing."""
    problem = ""
    try:
        if not session.state.workspaces.has(wanted.hash):
            files = _decompress(_download(session, worker, token, wanted))
            session.state.workspaces.put(_verify(files, wanted))
    except ArchiveError as error:
        problem = f"can't fetch its workspace: {error}"
    except SilentError as error:
        return error.silence
    except NotWritableError as error:
        return local_silence(worker.id, "fetch", error)
    return WorkspaceFetch(
        worker=worker.id, boot_id=worker.boot_id, incarnation=worker.incarnation, problem=problem
    )


def _download(session: Session, worker: Worker, token: Token, wanted: Workspace) -> Iterator[bytes]:
    """Yield the worker's file in pieces, up to the size that the first piece reports."""
    target, offset, start = session.target(worker), 0, session.clock.monotonic()
    size: int | None = None
    name = f"fetching {wanted.name or 'a workspace'}"
    with session.progress(lambda: (name, offset, size or 0, "bytes")):
        while size is None or offset < size:
            piece = answered(session.runner.outputs.packed(target, token, wanted.hash, offset))
            if not piece.version.inode:
                raise ArchiveError("not a regular file, or missing")
            size = size or piece.version.size
            # gzip adds only a few bytes to incompressible data.
            if size > wanted.size + (wanted.size >> 8) + _CHUNK:
                raise ArchiveError(f"{format_memory(size)}, expected {format_memory(wanted.size)}")
            # A transfer in tiny pieces would take days.
            if len(piece.data) < max(1, min(_MIN_PIECE, size - offset)):
                raise ArchiveError("it is truncated")
            offset += len(piece.data)
            if session.clock.monotonic() - start > _EXTRA_TIME + offset / _MIN_SPEED:
                raise ArchiveError("the transfer is too slow")
            yield piece.data


def _decompress(packed: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        for data in packed:
            while data:
                yield unpacker.decompress(data, _CHUNK)
                data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise ArchiveError(f"it is damaged ({error})") from error
    yield unpacker.flush()
    if not unpacker.eof or unpacker.unused_data:
        raise ArchiveError("it is damaged (wrong end)")


def _verify(chunks: Iterator[bytes], wanted: Workspace) -> Iterator[bytes]:
    """Yield the chunks. If they are not the wanted workspace, raise ArchiveError, possibly after the last chunk."""
    digest, size, check = sha256(), 0, TarCheck()
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        if size > wanted.size:
            raise ArchiveError(f"it unpacks to more than {format_memory(wanted.size)}")
        check.feed(chunk)
        yield chunk
    if (digest.hexdigest(), size) != (wanted.hash, wanted.size):
        raise ArchiveError("its content has changed")
    check.end()
