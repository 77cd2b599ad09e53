"""Port forwarding from this machine to a port of a task, on the worker that runs the task."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core import AttemptState, Cluster, Task, TaskId, WorkerId, clip, count, parse_index
from iris_cli.core.lifecycle.display import not_running_words, task_displays
from iris_cli.errors import IrisError, NotFoundError, UsageError
from iris_cli.ops.names import select_tasks
from iris_cli.ops.session import Session
from iris_cli.remote.fan_out import FanOut, Threads
from iris_cli.remote.transport import MAX_STREAMS, NoAnswer

if TYPE_CHECKING:
    from iris_cli.remote.ssh import SshTransport
    from iris_cli.remote.ssh.link import Link
    from iris_cli.remote.ssh.sockets import ByteStream
    from iris_cli.remote.transport import Target

LOOPBACK = "127.0.0.1"
_READ_INTERVAL = 1.0  # seconds between two reads of the log
_CHUNK = 32 << 10  # bytes
_MAX_CANDIDATES = 100  # number of ports to try after a port in use
_LAST_PORT = 65_535
_ALIVE = (AttemptState.RUNNING, AttemptState.STOPPING)


class ForwardRequest(Struct, frozen=True, kw_only=True):
    """A port of a task, by number or by name (endpoint or `--ports`), and the local port (None: the same number)."""

    remote: int | str
    local: int | None = None


class PortLocation(Struct, frozen=True, kw_only=True):
    """The worker on which a task runs now, and the number of its port."""

    worker: WorkerId
    port: int


def parse_request(text: str) -> ForwardRequest:
    """Parse `6006`, `8080:6006`, `tensorboard` or `8080:tensorboard`. Raises UsageError."""
    local, colon, remote = text.rpartition(":")
    if not remote or (colon and not local):
        raise UsageError(f"{clip(text)!r} is not [LOCAL:]PORT or [LOCAL:]ENDPOINT", hint="8080:6006")
    return ForwardRequest(
        remote=_parse_port(remote) if remote.isdecimal() else remote,
        local=_parse_port(local) if colon else None,
    )


def _parse_port(text: str) -> int:
    port = parse_index(text)
    if not 0 < port <= _LAST_PORT:
        raise UsageError(f"{clip(text)} is not a port", hint=f"ports are 1 to {_LAST_PORT}")
    return port


def find_task(cluster: Cluster, name: str, request: ForwardRequest) -> Task:
    """Return the task with the requested port. `name`: a task, or a job.

    In a job, it is the only task, or the only task with that endpoint. Raises NotFoundError and UsageError.
    """
    tasks = [task for task, _ in select_tasks(cluster, name)]
    if isinstance(request.remote, str):
        names = {task.id: _named_ports(cluster, task) for task in tasks}
        tasks = [task for task in tasks if request.remote in names[task.id]]
        if not tasks:
            known = ", ".join(sorted({endpoint for each in names.values() for endpoint in each}))
            raise NotFoundError(
                f"{clip(name)} has no endpoint {clip(request.remote)!r}",
                hint=f"endpoints: {known}" if known else f"name a port: iris forward {clip(name)} 6006",
            )
    if len(tasks) > 1:
        with_endpoint = f" with the endpoint {request.remote}" if isinstance(request.remote, str) else ""
        hint = f"iris forward {tasks[0].id} {request.remote}"
        raise UsageError(
            f"{clip(name)} has {count(len(tasks), 'task')}{with_endpoint}: name one of them", hint=hint
        )
    if _has_ended(tasks[0]):
        raise NotFoundError(_end_words(cluster, tasks[0].id), hint=f"iris logs {tasks[0].id}")
    attempt = tasks[0].current
    worker = cluster.workers.get(attempt.worker) if attempt is not None else None
    if worker is not None and worker.connection.allocation:
        raise UsageError(
            f"{tasks[0].id} is on {worker.id}, which is reached by srun: srun can't forward ports",
            hint="a slice_template with transport: ssh needs SSH to the nodes",
        )
    return tasks[0]


def port_location(cluster: Cluster, task: TaskId, remote: int | str) -> PortLocation | str:
    """Return the location of the task's port, or a message that says why the port is unknown."""
    attempt = cluster.tasks[task].current
    if attempt is None or attempt.state not in _ALIVE or attempt.worker not in cluster.workers:
        return f"{task} is {not_running_words(cluster, cluster.tasks[task])}"
    port = remote if isinstance(remote, int) else _named_ports(cluster, cluster.tasks[task]).get(remote)
    if port is None:
        return f"{task} has no endpoint {remote} now"
    return PortLocation(worker=attempt.worker, port=port)


def _named_ports(cluster: Cluster, task: Task) -> dict[str, int]:
    """Return the ports of a running task by name: its endpoints, and the `--ports` of its job."""
    attempt = task.current
    if attempt is None or attempt.state not in _ALIVE:
        return {}
    ports = dict(zip(cluster.jobs[task.job].ports, attempt.ports, strict=False))
    registered = cluster.endpoints.get(task.current_id)
    return {**ports, **{each.name: each.port for each in (registered.endpoints if registered else ())}}


def _has_ended(task: Task) -> bool:
    """Return True if the task has ended and no attempt is being stopped."""
    return task.state.terminal and (task.current is None or not task.current.live)


def _end_words(cluster: Cluster, task: TaskId) -> str:
    return f"{task} has ended ({task_displays(cluster, task.job)[task.index]})"


def listen(name: str, request: ForwardRequest, port: int) -> socket.socket:
    """Listen on a port of this machine's loopback. `name` and `request` are for the hint.

    Raises IrisError if the port is unavailable.
    """
    try:
        return socket.create_server((LOOPBACK, port), backlog=MAX_STREAMS)
    except OSError as error:
        free_port = _free_port(max(port, 1024))
        if isinstance(error, PermissionError):
            words = f"port {port} of this machine can't be used: {error.strerror}"
        else:
            words = f"port {port} of this machine is taken"
        raise IrisError(words, hint=f"iris forward {clip(name)} {free_port}:{request.remote}") from error


def _free_port(port: int) -> int:
    """Return a free port of this machine, if possible the next free port after `port`."""
    for candidate in range(port + 1, min(port + _MAX_CANDIDATES, _LAST_PORT)):
        with suppress(OSError), socket.create_server((LOOPBACK, candidate)):
            return candidate
    with socket.create_server((LOOPBACK, 0)) as server:
        free_port: int = server.getsockname()[1]
        return free_port


class Forward:
    """Forwards connections from `listener` to a port of the task. Call `run`, then `close`."""

    def __init__(
        self,
        session: Session,
        transport: SshTransport,
        task: TaskId,
        remote: int | str,
        listener: socket.socket,
    ) -> None:
        self._session = session
        self._transport = transport
        self._task = task
        self._remote = remote
        self._listener = listener
        self._listener.settimeout(_READ_INTERVAL)
        self._threads: FanOut[None] = Threads(MAX_STREAMS, linger=0.0)
        self._open: list[_Connection] = []
        self._link_lock = threading.Lock()  # held while the link is opened or checked
        self._link: Link | None = None  # connection to `_link_target`
        self._link_target: Target | None = None
        self._last_message = ""

    def run(self) -> str:
        """Forward connections until the task has ended. Return how it ended.

        While the task is not running, close connections at once.
        """
        while True:
            cluster = self._session.view()
            task = cluster.tasks.get(self._task)
            if task is None:
                return f"{self._task} is no longer in the log"
            if _has_ended(task):
                return _end_words(cluster, self._task)
            if (local := self._accept()) is not None:
                self._serve(local)
            self._threads.take(0.0)
            self._open = [each for each in self._open if not each.has_ended]
            if self._link_lock.acquire(blocking=False):
                self._drop_lost_link()
                self._link_lock.release()

    def close(self) -> None:
        """Close all connections, local and remote."""
        self._listener.close()
        for each in self._open:
            each.close()
        if self._link is not None:
            self._link.abort()
        self._threads.close()

    def _accept(self) -> socket.socket | None:
        """Return the next connection; None if no connection arrives within a second, or if MAX_STREAMS are open."""
        if len(self._open) >= MAX_STREAMS:
            self._session.clock.sleep(0.1)
            return None
        try:
            local, _ = self._listener.accept()
        except TimeoutError:
            return None
        except OSError as error:  # such as too many open files
            self._print_once(f"can't accept connections: {error.strerror}")
            self._session.clock.sleep(_READ_INTERVAL)
            return None
        local.settimeout(None)
        return local

    def _serve(self, local: socket.socket) -> None:
        location = port_location(self._session.view(), self._task, self._remote)
        if isinstance(location, str):
            self._print_once(f"{location}: connection closed")
            local.close()
            return
        target = self._session.target(self._session.cluster.workers[location.worker])
        connection = _Connection(local, partial(self._connect, target, location))
        self._open.append(connection)
        self._threads.submit(connection.run)

    def _connect(self, target: Target, location: PortLocation) -> ByteStream | None:
        """Return a stream to the task's port. After a failure, print the reason and return None. Thread-safe."""
        timeout = self._session.limits.connect_timeout
        try:
            with self._link_lock:
                self._drop_lost_link()
                link = self._link
                if link is None or self._link_target != target:
                    if link is not None:  # the task is on another worker now
                        self._link = None
                        link.abort()
                    link = self._link = self._transport.connect(target, timeout)
                    self._link_target = target
            stream = link.open_port(location.port, timeout)
        except NoAnswer as error:
            hint = f" (hint: {error.hint})" if error.hint else ""
            self._print_once(f"{location.worker}: {error.detail}{hint}: connection closed")
            return None
        self._last_message = ""
        return stream

    def _drop_lost_link(self) -> None:
        """If the connection to the worker was lost, close the link and print a message."""
        link, target = self._link, self._link_target
        if link is not None and target is not None and not link.is_alive():
            self._link = None
            link.abort()
            self._print_once(f"{target.worker}: the SSH connection was lost: connections closed")

    def _print_once(self, words: str) -> None:
        """Print a message unless it equals the last one, because many connections may have the same problem."""
        if words != self._last_message:
            self._last_message = words
            self._session.tell(words)


class _Connection:
    """A local connection and the stream to the task's port. `connect` opens the stream."""

    def __init__(self, local: socket.socket, connect: Callable[[], ByteStream | None]) -> None:
        self._local = local
        self._connect = connect
        self._stream: ByteStream | None = None
        self.has_ended = False

    def run(self) -> None:
        """Connect to the task, and copy data in both directions until both have ended."""
        sender: threading.Thread | None = None
        try:
            self._stream = self._connect()
            if self._stream is not None:
                sender = threading.Thread(target=self._copy_to, args=(self._stream,), daemon=True)
                sender.start()
                self._copy_from(self._stream)
                sender.join()
        finally:
            self.close()
            if sender is not None:
                sender.join()
            self._local.close()
            self.has_ended = True

    def _copy_from(self, stream: ByteStream) -> None:
        try:
            while data := stream.receive():
                self._local.sendall(data)
            # The task's program may still read, unless its host has closed the stream.
            self._local.shutdown(socket.SHUT_RDWR if stream.has_ended else socket.SHUT_WR)
        except OSError:  # the local client has gone
            self.close()

    def _copy_to(self, stream: ByteStream) -> None:
        try:
            while data := self._local.recv(_CHUNK):
                stream.send(data)
            stream.finish()
        except OSError:  # one side has gone
            self.close()

    def close(self) -> None:
        """Close both directions. This wakes threads that wait for data."""
        with suppress(OSError):
            self._local.shutdown(socket.SHUT_RDWR)
        if self._stream is not None:
            self._stream.close()
