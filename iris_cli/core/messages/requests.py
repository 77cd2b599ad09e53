"""Requests from inside a task, and their answers. `config/request_text.py` maps them to JSON.

A request is a file in the attempt's `outbox`, named by the request's id. The answer is a file with the same name in the
attempt's `inbox`. An attempt never uses an id twice. iris executes each request once, even if it reads the file
repeatedly.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

from msgspec import UNSET, Struct, UnsetType, field

from iris_cli import errors
from iris_cli.core import JobId, JobRequest, TaskId
from iris_cli.errors import ExitCode, IrisError, UsageError

FORMAT = 1
MAX_REQUEST_BYTES = 64 << 10  # maximum size of a request in bytes: a larger request is refused unread
MAX_LOG_PIECE = 64 << 10  # bytes of a log in one answer
MAX_WAITS = 64  # maximum number of jobs that one attempt may wait for at a time


class Submit(Struct, frozen=True, kw_only=True, tag="submit"):
    """Submit a child job. `job.name` is the last part of its id.

    If `job.constraints` is None, the job inherits all constraints of its parent. If the field is (), it inherits none.
    """

    job: JobRequest


class Cancel(Struct, frozen=True, kw_only=True, tag="cancel"):
    """Cancel a child job. Result: `CancelAnswer`; `cancelled` is false if it had ended uncancelled."""

    job: JobId
    reason: str = ""


class Status(Struct, frozen=True, kw_only=True, tag="status"):
    """Return the status of a job (default: the job of the requesting task): `{"job": {...}, "tasks": [...]}`."""

    job: JobId | None = None


class Tasks(Struct, frozen=True, kw_only=True, tag="tasks"):
    """Return the tasks of a job (default: the job of the requesting task): `{"tasks": [...]}`."""

    job: JobId | None = None


class Wait(Struct, frozen=True, kw_only=True, tag="wait"):
    """Wait until the job has ended, then return the same as `Status`."""

    job: JobId


class Logs(Struct, frozen=True, kw_only=True, tag="logs"):
    """Return a piece of a task's output: `{"offset": N, "size": N, "data": BASE64}`.

    A negative offset counts from the end. `attempt` is the number of the attempt, None the last attempt.
    """

    task: TaskId
    stream: str = "out"
    offset: int = 0
    limit: int = MAX_LOG_PIECE
    attempt: int | None = None


class Endpoints(Struct, frozen=True, kw_only=True, tag="endpoints"):
    """Return the endpoints of a job (default: the job of the requesting task).

    Result: `{"endpoints": [{"task", "name", "address", "port", "metadata"}]}`.
    """

    job: JobId | None = None


class RegisterEndpoint(Struct, frozen=True, kw_only=True, tag="register_endpoint"):
    """Register a port of this task under a name until its attempt ends. An endpoint of the same name is replaced."""

    name: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)


class RemoveEndpoint(Struct, frozen=True, kw_only=True, tag="remove_endpoint"):
    """Remove an endpoint. Result: `{"removed": BOOL}`."""

    name: str


Request = Submit | Cancel | Status | Tasks | Wait | Logs | Endpoints | RegisterEndpoint | RemoveEndpoint

OPS: Mapping[str, type[Request]] = {str(each.__struct_config__.tag): each for each in get_args(Request)}
"""The types of requests by their names."""


class JobPart(Struct, frozen=True, kw_only=True):
    """A job in an answer. Times are seconds since the epoch by the operator's clock; `--json` prints them as text.

    An older iris may omit fields that have a default. `why` is the cause of the end, or the reason for pending.
    """

    id: str
    state: str
    display: str | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    why: str = ""
    replicas: int | UnsetType = UNSET
    submitted_at: float | UnsetType = UNSET
    ended_at: float | UnsetType | None = UNSET
    children: Sequence[str] | UnsetType = UNSET


class TaskPart(Struct, frozen=True, kw_only=True):
    """A task in an answer. `attempt`: number of the last attempt; `duration`: in seconds. Times are as in `JobPart`."""

    id: str
    state: str
    display: str | UnsetType = UNSET
    attempt: int | UnsetType | None = UNSET
    worker: str | None = None
    exit_code: int | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET
    why: str = ""
    started_at: float | UnsetType | None = UNSET
    ended_at: float | UnsetType | None = UNSET
    duration: float | UnsetType | None = field(default=UNSET, name="duration_seconds")


class EndpointPart(Struct, frozen=True, kw_only=True):
    """An endpoint that a task registered: a port, and the address of the task's worker."""

    task: str
    name: str
    address: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)


class JobAnswer(Struct, frozen=True, kw_only=True):
    """The result of `iris status` inside a task: the fields of `iris status JOB` that tasks may see.

    It is the answer to the requests `status` and `wait`. An older iris may omit optional fields.
    """

    FLATTENED: ClassVar = ("job",)
    job: JobPart
    tasks: Sequence[TaskPart]
    endpoints: Sequence[EndpointPart] | UnsetType = UNSET


class Submitted(Struct, frozen=True):
    """The result of the request `submit` and of `iris launch` inside a task. `created`: the child job is new."""

    job: str
    created: bool | UnsetType = UNSET


class Registered(Struct, frozen=True):
    """The result of the request `register_endpoint` and of `iris register-endpoint`."""

    name: str
    port: int


class Removed(Struct, frozen=True):
    """The result of `remove_endpoint` and of `iris register-endpoint --remove`. `removed`: the endpoint existed."""

    removed: bool


class CancelAnswer(Struct, frozen=True):
    """The result of the request `cancel`. `state` is the job's state; an older iris omits it."""

    job: str
    cancelled: bool
    state: str = ""


class Refusal(Struct, frozen=True, kw_only=True):
    """The answer to a refused request: an error message as `iris` shows it. `kind` is one of `KINDS`."""

    kind: str
    message: str
    hint: str = ""
    exit_code: ExitCode = ExitCode.FAILED

    def error(self) -> IrisError:
        """Return the exception that the operator's commands raise for this error."""
        return KINDS.get(self.kind, IrisError)(self.message, hint=self.hint)


Answer = Mapping[str, Any] | Refusal
"""The answer to a request: a result of plain JSON values, or a refusal."""


def check_no_deadlock(own: str, job: str) -> None:
    """Raise UsageError if a task of `own` would wait for `job`, which can't end before that task."""
    if f"{own}/".startswith(f"{job}/"):
        raise UsageError(f"{job} can't end before this task, which is part of it", hint="wait for child jobs")


KINDS: Mapping[str, type[IrisError]] = {
    "usage": UsageError,
    "config": errors.ConfigError,
    "not_found": errors.NotFoundError,
    "unreachable": errors.UnreachableError,
    "unschedulable": errors.UnschedulableError,
    "refused": IrisError,  # all other errors: limits, ended attempts
}


def refusal_of(error: IrisError) -> Refusal:
    kind = next((kind for kind, each in KINDS.items() if each is type(error)), "refused")
    return Refusal(kind=kind, message=error.message, hint=error.hint, exit_code=error.exit_code)
