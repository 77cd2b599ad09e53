"""The records that the client returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, field

from iris_cli.core import JobId, JobState, TaskState, WorkerId


class TaskStatus(Struct, frozen=True, kw_only=True):
    """One task.

    `id` is `JOB/task-INDEX`. `attempt`, `worker` and `exit_code` belong to the task's last attempt. `attempt` and
    `worker` are None if the task was never placed. `exit_code` is None before the end of the attempt. `display` is the
    state as `iris status` shows it, such as `FAILED exit 1`, `RETRYING (1 of 3)`, or `STOPPED` for a rank that iris
    stopped because another rank failed. `why` says why the task is pending, or why it has ended.
    """

    id: str
    state: TaskState
    display: str = ""
    attempt: int | None = None
    worker: WorkerId | None = None
    exit_code: int | None = None
    why: str = ""


class JobStatus(Struct, frozen=True, kw_only=True):
    """One job. `tasks` are ordered by index.

    `why` says why the job is pending, or why it has ended. `display` is the state as `iris status` shows it. Before the
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
    """One line of a task's output, without its line feed. The text is untrusted.

    `stream` is `out` or `err`. `task` is `JOB/task-INDEX`.
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
"""Function to call with each streamed line."""


class HasId(Protocol):
    """A `Job` or an `AsyncJob`."""

    @property
    def id(self) -> JobId: ...
