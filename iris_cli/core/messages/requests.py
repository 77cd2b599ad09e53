"""What a task may ask for from inside, and what it is answered: values; `config/request_text.py` has them as JSON.

A request is a file in the attempt's `outbox`, named by its id, its answer one of that name in its `inbox`. Ids count
for ever: what changes something is done once for each attempt and id, however often it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType, field

from iris_cli import errors
from iris_cli.core import JobId, JobRequest, TaskId
from iris_cli.errors import ExitCode, IrisError, UsageError

FORMAT = 1
MOST_BYTES = 64 << 10  # the size of a request; what is larger is refused without being read
LONGEST_LOG_PIECE = 64 << 10  # the most bytes of a log in one answer


class Submit(Struct, frozen=True, kw_only=True):
    """Run a child job. `job.name` is the last part of its id; constraints None inherit the parent's, () none."""

    job: JobRequest


class Cancel(Struct, frozen=True, kw_only=True):
    """End a child job. Result: `CancelAnswer`; `cancelled` is false if the job had already ended."""

    job: JobId
    reason: str = ""


class Status(Struct, frozen=True, kw_only=True):
    """How a job stands: `{"job": {...}, "tasks": [...]}`; None is the job of the task that asks."""

    job: JobId | None = None


class Tasks(Struct, frozen=True, kw_only=True):
    """The tasks of a job: `{"tasks": [...]}`."""

    job: JobId | None = None


class Wait(Struct, frozen=True, kw_only=True):
    """As `Status`, answered when the job is over."""

    job: JobId


class Logs(Struct, frozen=True, kw_only=True):
    """A piece of the output of a task: `{"offset": N, "size": N, "data": BASE64}`.

    A negative offset counts from the end; `attempt` is its number, None the last one.
    """

    task: TaskId
    stream: str = "out"
    offset: int = 0
    limit: int = LONGEST_LOG_PIECE
    attempt: int | None = None


class Endpoints(Struct, frozen=True, kw_only=True):
    """The endpoints of a job's tasks: `{"endpoints": [{"task", "name", "address", "port", "metadata"}]}`."""

    job: JobId | None = None


class RegisterEndpoint(Struct, frozen=True, kw_only=True):
    """Make a port of this task known under a name, until its attempt ends. A name that it has is overwritten."""

    name: str
    port: int
    metadata: Mapping[str, str] = field(default_factory=dict)


class RemoveEndpoint(Struct, frozen=True, kw_only=True):
    """Take one back. Result: `{"removed": BOOL}`."""

    name: str


Request = Submit | Cancel | Status | Tasks | Wait | Logs | Endpoints | RegisterEndpoint | RemoveEndpoint

OPS: Mapping[str, type[Request]] = {
    "submit": Submit,
    "cancel": Cancel,
    "status": Status,
    "tasks": Tasks,
    "wait": Wait,
    "logs": Logs,
    "endpoints": Endpoints,
    "register_endpoint": RegisterEndpoint,
    "remove_endpoint": RemoveEndpoint,
}
"""The words of the requests."""


class JobPart(Struct, frozen=True, kw_only=True):
    """A job in an answer. Times are seconds since the epoch by the operator's clock; `--json` prints them as text.

    An older iris may answer without the fields that have a default. `why` is the cause of the end, or of waiting.
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
    """A task in an answer. `attempt` is the number of the last attempt, `duration` its seconds. Times as in a job."""

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
    """Where a task listens, in an answer."""

    task: str
    name: str
    address: str
    port: int
    metadata: Mapping[str, str] | UnsetType = UNSET


class JobAnswer(Struct, frozen=True, kw_only=True):
    """The result of `iris status` inside a task: the fields of `iris status JOB` that are known there.

    It is the answer to `Status` and `Wait`. An older iris may omit optional fields.
    """

    FLATTENED: ClassVar = ("job",)
    job: JobPart
    tasks: Sequence[TaskPart]
    endpoints: Sequence[EndpointPart] | UnsetType = UNSET


class Submitted(Struct, frozen=True):
    """The result of `Submit`, and of `iris launch` inside a task: the child job; whether this request created it."""

    job: str
    created: bool | UnsetType = UNSET


class Registered(Struct, frozen=True):
    """The result of `RegisterEndpoint`, and of `iris register-endpoint`."""

    name: str
    port: int


class Removed(Struct, frozen=True):
    """The result of `RemoveEndpoint`, and of `iris register-endpoint --remove`: whether there was such an endpoint."""

    removed: bool


class CancelAnswer(Struct, frozen=True):
    """The result of `Cancel`. `state` is that of the job; an older iris answers without it."""

    job: str
    cancelled: bool
    state: str = ""


class Refusal(Struct, frozen=True, kw_only=True):
    """Why something was not done: an error as `iris` would show it. `kind` is one of `KINDS`."""

    kind: str
    message: str
    hint: str = ""
    exit_code: ExitCode = ExitCode.FAILED

    def error(self) -> IrisError:
        """The same as an exception, of the class that the operator's commands raise."""
        return KINDS.get(self.kind, IrisError)(self.message, hint=self.hint)


Answer = Mapping[str, Any] | Refusal
"""What a request is answered: a result of plain JSON values, or a refusal."""


def check_end_can_come(own: JobId, job: JobId) -> None:
    """Raises UsageError if a task of `own` would wait for its own end: its job is over only after it."""
    if f"{own}/".startswith(f"{job}/"):
        raise UsageError(f"{job} can't end before this task, which is part of it", hint="wait for child jobs")


KINDS: Mapping[str, type[IrisError]] = {
    "usage": UsageError,
    "config": errors.ConfigError,
    "not_found": errors.NotFoundError,
    "unreachable": errors.UnreachableError,
    "unschedulable": errors.UnschedulableError,
    "refused": IrisError,  # everything else: limits, attempts that are over
}


def refusal_of(error: IrisError) -> Refusal:
    kinds = (kind for kind, each in KINDS.items() if each is type(error))
    return Refusal(
        kind=next(kinds, "refused"), message=error.message, hint=error.hint, exit_code=error.exit_code
    )
