"""The records that the client returns, among them the task in which a program runs, read from its environment."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.json import decode

from iris_cli.core import Constraint, JobId, JobState, TaskId, TaskState, WorkerId, clip, parent_of
from iris_cli.core.constraints import constraints_from_json
from iris_cli.core.ids import parse_job_id, parse_task_id, parse_worker_id
from iris_cli.errors import UsageError

T = TypeVar("T")

ANSWER_TIMEOUT = 300.0
"""Timeout in seconds for the answer to a request from inside a task. With cron, an answer may take a minute."""

BOTH = ("out", "err")
"""The streams of a task."""

_PORT_PREFIX = "IRIS_PORT_"
_REQUIRED = object()


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


Sink = Callable[[LogLine], None]
"""Function to call with each streamed line."""


class HasId(Protocol):
    """A `Job` or an `AsyncJob`."""

    @property
    def id(self) -> JobId: ...


class JobInfo(Struct, frozen=True, kw_only=True):
    """Information about a task.

    `task_index` and `attempt` count from 0. `task_id` is `JOB/task-INDEX`. `constraints` are the job's constraints.
    `hosts` are the hosts of the gang by rank; for a task outside a gang, only the task's own host.
    `coordinator_address` is the `host:port` of the coordinator on the first host. `slice_index` is the number of the
    task's slice in a gang on several slices. `array_index` is None if the job is not an array. `ports` maps port names,
    in lower case, to numbers. `default_env` is from the cluster's configuration. In a process that iris did not start,
    such as a test, the directories are None and `worker_id` is empty.
    """

    job_id: JobId
    task_id: str
    task_index: int
    num_tasks: int
    attempt: int
    worker_id: WorkerId
    constraints: tuple[Constraint, ...] = ()
    worker_attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    scale_group: str | None = None
    default_env: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    coordinator_address: str | None = None
    slice: str | None = None
    num_slices: int = 1
    slice_index: int = 0
    array_index: int | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    workdir: Path | None = None
    output_dir: Path | None = None
    task_dir: Path | None = None

    @property
    def parent_id(self) -> JobId | None:
        """The parent job; None if the job has no parent."""
        return parent_of(self.job_id)


def get_job_info() -> JobInfo | None:
    """Return information about this task. Outside of tasks, where `IRIS_JOB_ID` is not set, return None.

    `IRIS_TASK_ID` or `IRIS_TASK_INDEX` must be set, because with a default index two ranks might do the same work. All
    other variables may be missing, for example in a test. By default the job has index + 1 tasks, the attempt is 0, and
    there is no worker. Raises UsageError with the name of the missing or invalid variable.
    """
    if not os.environ.get("IRIS_JOB_ID"):
        return None
    return read_job_info(os.environ)


def read_job_info(environ: Mapping[str, str]) -> JobInfo:
    """Return the information in the environment `environ`. Raises UsageError."""
    read = _Reader(environ)
    job = read("IRIS_JOB_ID", parse_job_id)
    task = _task(read, job)
    info = JobInfo(
        job_id=job,
        task_id=str(task),
        task_index=task.index,
        num_tasks=read("IRIS_NUM_TASKS", _whole_number, task.index + 1),
        attempt=read("IRIS_ATTEMPT", _whole_number, 0),
        worker_id=read("IRIS_WORKER_ID", parse_worker_id, WorkerId("")),
        constraints=read("IRIS_JOB_CONSTRAINTS", lambda text: tuple(constraints_from_json(text)), ()),
        worker_attributes=read(
            "IRIS_WORKER_ATTRIBUTES", partial(decode, type=dict[str, str | int | float]), {}
        ),
        scale_group=read("IRIS_SCALE_GROUP", str, None),
        default_env=read("IRIS_TASK_DEFAULT_ENV_JSON", partial(decode, type=dict[str, str]), {}),
        hosts=read("IRIS_HOSTS", lambda text: tuple(text.split(",")), ()),
        coordinator_address=read("IRIS_COORDINATOR_ADDRESS", str, None),
        slice=read("IRIS_SLICE", str, None),
        num_slices=read("IRIS_NUM_SLICES", _whole_number, 1),
        slice_index=read("IRIS_SLICE_INDEX", _whole_number, 0),
        array_index=read("IRIS_ARRAY_INDEX", _whole_number, None),
        ports={
            name.removeprefix(_PORT_PREFIX).lower(): read(name, _whole_number)
            for name in environ
            if name.startswith(_PORT_PREFIX) and environ[name]
        },
        workdir=read("IRIS_WORKDIR", Path, None),
        output_dir=read("IRIS_OUTPUT_DIR", Path, None),
        task_dir=read("IRIS_TASK_DIR", Path, None),
    )
    if info.task_index >= info.num_tasks:
        _raise_invalid("IRIS_TASK_INDEX", str(info.task_index), f"the job has {info.num_tasks} tasks")
    return info


def _task(read: "_Reader", job: JobId) -> TaskId:
    """Return the task's id, from IRIS_TASK_ID or IRIS_TASK_INDEX. One of the two is required."""
    unknown = TaskId(job, -1)
    task_id = read("IRIS_TASK_ID", parse_task_id, unknown)
    if task_id == unknown:
        return TaskId(job, read("IRIS_TASK_INDEX", _whole_number))
    index = read("IRIS_TASK_INDEX", _whole_number, task_id.index)
    if task_id != TaskId(job, index):
        _raise_invalid("IRIS_TASK_ID", str(task_id), f"it is not task {index} of job {job}")
    return task_id


class _Reader:
    """Reads variables. An empty variable counts as missing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __call__(self, name: str, parse: Callable[[str], T], default: object = _REQUIRED) -> T:
        text = self._environ.get(name)
        if not text:
            if default is _REQUIRED:
                raise UsageError(
                    f"{name} is not set, but IRIS_JOB_ID is",
                    hint="pass all IRIS_* variables to child programs",
                )
            return default  # type: ignore[return-value]  # callers pass a default of the field's type
        try:
            return parse(text)
        except (ValueError, UsageError, RecursionError) as error:
            _raise_invalid(name, text, str(error))


def _raise_invalid(name: str, text: str, why: str) -> NoReturn:
    raise UsageError(f"invalid {name}={clip(text)!r}: {why}", hint="do not change it")


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("not a number")
    return int(text)
