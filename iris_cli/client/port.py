"""The client's port to a cluster, and the plain records it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from iris_cli.core import JobId, JobRequest, JobState, TaskState, WorkerId


class TaskStatus(Struct, frozen=True, kw_only=True):
    """One task. `id` is `JOB/task-INDEX`; `attempt`, `worker` and `exit_code` are those of its last attempt.

    They are None if it was never placed or has not ended. `display` is the state as on the screen: `STOPPED` for a rank
    stopped with its gang, `FAILED exit 1`, `RETRYING (1 of 3)`. `why` is why it is pending or has ended.
    """

    id: str
    state: TaskState
    display: str = ""
    attempt: int | None = None
    worker: WorkerId | None = None
    exit_code: int | None = None
    why: str = ""


class JobStatus(Struct, frozen=True, kw_only=True):
    """One job with its tasks by index. `display` is the state as on the screen, `why` why it is pending or has ended.

    `display` is `RUNNING` only while a task runs, otherwise `STOPPING`, `RETRYING (1 of 3)`, `PENDING (3 of 20 done)`.
    """

    id: JobId
    state: JobState
    display: str = ""
    why: str = ""
    tasks: tuple[TaskStatus, ...] = ()
    children: tuple[JobId, ...] = ()


class Endpoint(Struct, frozen=True, kw_only=True):
    """An address that a task of a job has registered. It is removed when that attempt ends."""

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
    """One line of a task's output without its line feed: untrusted data.

    `stream` is `out` or `err`; `task` is `JOB/task-INDEX`.
    """

    task: str
    attempt: int
    stream: str
    text: str


ANSWER_TIMEOUT = 300.0
"""Timeout in seconds for the answer to a request from inside a task: cron runs a cycle each minute."""

BOTH = ("out", "err")
"""The streams of a task."""

Sink = Callable[[LogLine], None]


class HasId(Protocol):
    """A `Job` or an `AsyncJob`."""

    @property
    def id(self) -> JobId: ...


class LogQuery(Struct, frozen=True, kw_only=True):
    """A selection of lines: `tail` of each stream (None: all), of these `ranks` (empty: all)."""

    tail: int | None = None
    ranks: Sequence[int] = ()
    attempt: int | None = None
    streams: Sequence[str] = BOTH


class Backend(Protocol):
    """The operations behind the client. Jobs and tasks are identified by id; all raise IrisError.

    Thread-safe.
    """

    def submit(self, request: JobRequest, *, request_id: str | None, schedule: bool) -> JobId:
        """Submit a job; it is durable when this returns."""
        ...

    def status(self, job: str) -> JobStatus:
        """Return the current status."""
        ...

    def wait(
        self, job: str, timeout: float | None, follow: Sequence[int] | None, sink: Sink
    ) -> JobState | None:
        """Wait for the end; return None after `timeout` seconds. Output of the ranks in `follow` goes to the sink.

        An empty `follow` means all ranks, None means no rank.
        """
        ...

    def wait_all(self, jobs: Sequence[JobId], timeout: float | None) -> list[JobState | None]:
        """Return the final state of each job, None for those that have not ended after `timeout` seconds."""
        ...

    def pull(self, job: JobId, directory: Path) -> Path:
        """Fetch the files of a job to `directory/JOB`, which is returned.

        Raises UnreachableError if a worker does not answer.
        """
        ...

    def logs(self, what: str, query: LogQuery) -> list[LogLine]:
        """Return the output of a job or a task so far."""
        ...

    def cancel(self, job: str, reason: str) -> bool:
        """Cancel a job and its children. Return False if it had ended."""
        ...

    def retry(self, what: str) -> int:
        """Stop running attempts of a job or a task to reschedule them; return the number of stopped attempts."""
        ...

    def endpoints(self, job: str | None) -> tuple[Endpoint, ...]:
        """Return the endpoints of a job's tasks; None means the job of this task."""
        ...

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str]) -> None:
        """Register a port of this task."""
        ...

    def remove_endpoint(self, name: str) -> bool:
        """Remove an endpoint. Return False if absent."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
