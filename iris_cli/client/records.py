"""What the client answers with: plain records, the same beside a state directory and inside a task."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import TaskState


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
