"""The interface between the client and a cluster, and the records that the client returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from iris_cli.core import JobId, JobRequest, JobState, TaskState, WorkerId


class TaskStatus(Struct, frozen=True, kw_only=True):
    """One task.

    `id` is `JOB/task-INDEX`. `attempt`, `worker` and `exit_code` belong to the task's last attempt. `attempt` and
    `worker` are None if the task was never placed, `exit_code` is None before the end of the attempt. `display` is the
    state as shown on the screen: `STOPPED` for a rank that iris stopped because another rank failed, `FAILED exit 1`,
    `RETRYING (1 of 3)`. `why` says why the task is pending, or why it has ended.
    """

    id: str
    state: TaskState
    display: str = ""
    attempt: int | None = None
    worker: WorkerId | None = None
    exit_code: int | None = None
    why: str = ""


class JobStatus(Struct, frozen=True, kw_only=True):
    """One job with its tasks by index.

    `why` says why the job is pending, or why it has ended. `display` is the state as shown on the screen. Before the
    job's end it is `RUNNING` if a task is running, otherwise `STOPPING`, `RETRYING (1 of 3)` or `PENDING (3 of 20
    done)`.
    """

    id: JobId
    state: JobState
    display: str = ""
    why: str = ""
    tasks: tuple[TaskStatus, ...] = ()
    children: tuple[JobId, ...] = ()


class Endpoint(Struct, frozen=True, kw_only=True):
    """An address that a task has registered under a name. It is removed when the task's attempt ends."""

    name: str
    task: str
    host: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of a task's output without its line feed. The text is untrusted data.

    `stream` is `out` or `err`; `task` is `JOB/task-INDEX`.
    """

    task: str
    attempt: int
    stream: str
    text: str


ANSWER_TIMEOUT = 300.0
"""Timeout in seconds for the answer to a request from inside a task. With cron, an answer may take a minute."""

BOTH = ("out", "err")
"""The streams of a task."""

Sink = Callable[[LogLine], None]


class HasId(Protocol):
    """A `Job` or an `AsyncJob`."""

    @property
    def id(self) -> JobId: ...


class LogQuery(Struct, frozen=True, kw_only=True):
    """A selection of lines: the last `tail` lines of each stream (None: all), of these `ranks` ((): all)."""

    tail: int | None = None
    ranks: Sequence[int] = ()
    attempt: int | None = None
    streams: Sequence[str] = BOTH


class Backend(Protocol):
    """The operations behind the client.

    Jobs and tasks are identified by id. All operations raise IrisError. Thread-safe.
    """

    def submit(self, request: JobRequest, *, request_id: str | None, schedule: bool) -> JobId:
        """Submit a job and return its id. On the operator's machine the job is in the log when this method returns."""
        ...

    def status(self, job: str) -> JobStatus:
        """Return the current status."""
        ...

    def wait(
        self, job: str, timeout: float | None, follow: Sequence[int] | None, sink: Sink
    ) -> JobState | None:
        """Wait until the job has ended and return its state, or None after `timeout` seconds.

        The output of the ranks in `follow` is passed to the sink; () means all ranks, None no rank.
        """
        ...

    def wait_all(self, jobs: Sequence[JobId], timeout: float | None) -> list[JobState | None]:
        """Return the final state of each job, None for each job that has not ended after `timeout` seconds."""
        ...

    def pull(self, job: JobId, directory: Path) -> Path:
        """Fetch the files of a job to `directory/JOB`. Return this path.

        Raises UnreachableError if a worker does not answer.
        """
        ...

    def logs(self, what: str, query: LogQuery) -> list[LogLine]:
        """Return the present output of a job or a task."""
        ...

    def cancel(self, job: str, reason: str) -> bool:
        """Cancel a job and its children. Return False if the job had already ended."""
        ...

    def retry(self, what: str) -> int:
        """Stop the running attempts of a job or a task, so that they are retried. Return the number of attempts."""
        ...

    def endpoints(self, job: str | None) -> tuple[Endpoint, ...]:
        """Return the endpoints of a job's tasks; None means the job of this task."""
        ...

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str]) -> None:
        """Register a port of this task."""
        ...

    def remove_endpoint(self, name: str) -> bool:
        """Remove an endpoint. Return False if no endpoint has this name."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
