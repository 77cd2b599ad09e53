"""What the client needs of the world, one port, and the plain records that it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from iris_cli.core import JobId, JobRequest, JobState, TaskState, WorkerId


class TaskStatus(Struct, frozen=True, kw_only=True):
    """One task. `id` is `JOB/task-INDEX`; `attempt`, `worker` and `exit_code` are those of its last attempt.

    None where it was never placed, or has not ended. `display` is how its state reads on the screen: `STOPPED` for a
    rank stopped with its gang, `FAILED exit 1`, `RETRYING (1 of 3)`. `why` says what it waits for, or why it ended.
    """

    id: str
    state: TaskState
    display: str = ""
    attempt: int | None = None
    worker: WorkerId | None = None
    exit_code: int | None = None
    why: str = ""


class JobStatus(Struct, frozen=True, kw_only=True):
    """One job with its tasks, by index. `display` is how its state reads on the screen: `RUNNING` only while a task
    runs, otherwise `STOPPING`, `RETRYING (1 of 3)`, `PENDING (3 of 20 done)`. `why` says what it waits for, or the
    cause of its end.
    """

    id: JobId
    state: JobState
    display: str = ""
    why: str = ""
    tasks: tuple[TaskStatus, ...] = ()
    children: tuple[JobId, ...] = ()


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a task of a job listens: it told so itself. It is gone when that attempt has ended."""

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
    """One line that a task wrote, without its line feed: data from a program, whatever it holds.

    `stream` is `out` or `err`; `task` is `JOB/task-INDEX`.
    """

    task: str
    attempt: int
    stream: str
    text: str


ANSWER_TIMEOUT = 300.0
"""Seconds that a request from inside a task waits for its answer: cron runs a cycle each minute."""

BOTH = ("out", "err")
"""The streams of a task."""

Sink = Callable[[LogLine], None]


class HasId(Protocol):
    """A `Job` or an `AsyncJob`."""

    @property
    def id(self) -> JobId: ...


class LogQuery(Struct, frozen=True, kw_only=True):
    """Which lines of a task or job: `tail` of each stream, None for all; no `ranks` means every one."""

    tail: int | None = None
    ranks: Sequence[int] = ()
    attempt: int | None = None
    streams: Sequence[str] = BOTH


class Backend(Protocol):
    """Does what the client is asked for. Jobs and tasks by their ids; all raise IrisError.

    Safe to use from many threads, each call by itself.
    """

    def submit(self, request: JobRequest, *, request_id: str | None, schedule: bool) -> JobId:
        """Run a job; it is known when this returns."""
        ...

    def status(self, job: str) -> JobStatus:
        """How it stands now."""
        ...

    def wait(
        self, job: str, timeout: float | None, follow: Sequence[int] | None, sink: Sink
    ) -> JobState | None:
        """Until it is over; None if `timeout` seconds were first. What the ranks in `follow` write goes to the sink.

        No ranks at all are every one; None follows nobody.
        """
        ...

    def wait_all(self, jobs: Sequence[JobId], timeout: float | None) -> list[JobState | None]:
        """How each job ended, None for those that have not ended after `timeout` seconds."""
        ...

    def pull(self, job: JobId, directory: Path) -> Path:
        """Fetch the files of a job to `directory/JOB`, which is returned.

        Raises UnreachableError if a worker does not answer.
        """
        ...

    def logs(self, what: str, query: LogQuery) -> list[LogLine]:
        """What a job or a task has written so far."""
        ...

    def cancel(self, job: str, reason: str) -> bool:
        """End a job and its children. False if it was over."""
        ...

    def retry(self, what: str) -> int:
        """Stop what runs of a job or a task, to place it again; the number of attempts that this stops."""
        ...

    def endpoints(self, job: str | None) -> tuple[Endpoint, ...]:
        """Where the tasks of a job listen; None is the job of this task."""
        ...

    def register_endpoint(self, name: str, port: int, metadata: Mapping[str, str]) -> None:
        """Make a port of this task known."""
        ...

    def remove_endpoint(self, name: str) -> bool:
        """Take one back. False if there was none."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...
