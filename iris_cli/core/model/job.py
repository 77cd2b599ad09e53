"""A job as the user requests it (`JobRequest`), and as iris accepted it with its progress (`Job`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from iris_cli.core.constraints import Constraint
from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, clip, task_ids_of
from iris_cli.core.model.array import indexes_of
from iris_cli.core.model.task import End
from iris_cli.core.resources import DEFAULT_RESOURCES, Resources
from iris_cli.core.structs import Record, Value
from iris_cli.core.text import did_you_mean, pattern
from iris_cli.core.units import parse_duration
from iris_cli.errors import UsageError

DEFAULT_LEAD = 60.0

SIGNALS = MappingProxyType(
    {"USR1": 10, "USR2": 12, "HUP": 1, "INT": 2, "QUIT": 3, "TERM": 15, "ALRM": 14, "CONT": 18}
    | {"URG": 23, "WINCH": 28, "XCPU": 24}
)
"""Signals that programs can handle: names known to every shell's `kill`, with their numbers on Linux."""


class EarlySignal(Value, frozen=True):
    """The signal `name` (without SIG), sent to the processes of a task `lead` seconds before its time limit."""

    name: str
    lead: float = DEFAULT_LEAD


def parse_early_signal(text: str) -> EarlySignal:
    """Parse `USR1@120`, `SIGUSR1@2m`, or `USR1` (one minute before). Raises UsageError."""
    name, sign, lead = text.partition("@")
    name = name.strip().upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise UsageError(
            f"{clip(text)!r} is not a signal",
            hint=did_you_mean(clip(name), SIGNALS) or f"write USR1@120, or one of {', '.join(SIGNALS)}",
        )
    seconds = parse_duration(lead) if sign else DEFAULT_LEAD
    if seconds <= 0:
        raise UsageError(
            f"{clip(text)!r} is too late", hint="write the seconds before the time limit: USR1@120"
        )
    return EarlySignal(name, seconds)


class JobState(StrEnum):
    """State of a job, derived from its tasks (`Cluster.job_state`), never stored."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    UNSCHEDULABLE = "UNSCHEDULABLE"

    @property
    def terminal(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING)

    @property
    def is_failure(self) -> bool:
        return self.terminal and self is not JobState.SUCCEEDED


class Priority(StrEnum):
    """Scheduling priority. Jobs with a lower `rank` are placed first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        return {"high": 0, "normal": 1, "low": 2}[self.value]

    __hash__ = str.__hash__  # because the hash of an enum is much slower


class EnvPreset(StrEnum):
    """Sets of environment variables for gangs on hosts that are not TPU VMs, so that the ranks find each other."""

    JAX = "jax"
    SLURM = "slurm"
    TORCHRUN = "torchrun"


class ReplaceLost(StrEnum):
    """The workers whose tasks are retried on other workers after a long silence."""

    NEVER = "never"
    PREEMPTIBLE = "preemptible"
    ALWAYS = "always"


class CoschedulingConfig(Value, frozen=True):
    """Makes the job a gang: all its tasks run on workers with an equal value of the attribute `group_by`."""

    group_by: str

    def __post_init__(self) -> None:
        if not self.group_by.strip():
            raise ValueError("coscheduling.group_by is empty")


class Workspace(Value, frozen=True, kw_only=True):
    """A directory that iris packs at submission and copies to the workers of the job's tasks.

    `hash`: SHA-256 of the tar file in hexadecimal digits; `size`: bytes of the tar file, not compressed; `files`:
    number of files and links; `name`: the directory's name for display. Raises ValueError.
    """

    hash: str
    size: int
    files: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if _SHA256.fullmatch(self.hash) is None:
            raise ValueError("a workspace has the SHA-256 of its tar file, 64 hexadecimal digits")
        if self.size < 0 or self.files < 0:
            raise ValueError("sizes must not be negative")


class Lines(Value, frozen=True, kw_only=True):
    """The lines of a file, one for each task, stored in the state directory under their SHA-256.

    `count`: number of lines; `size`: bytes of all lines, each with a line end. Raises ValueError.
    """

    hash: str
    count: int
    size: int

    def __post_init__(self) -> None:
        if _SHA256.fullmatch(self.hash) is None or self.count < 1 or self.size < self.count:
            raise ValueError("lines have a SHA-256 of 64 hexadecimal digits, and there is at least one")


_SHA256 = pattern("[0-9a-f]{64}")


class Origin(Value, frozen=True):
    """The attempt that submitted a child job, and the id of its request.

    `digest` is a hash of the request without the name: equal digests mean equal requests. `repeats` are the
    constraints that both the parent and the request have.
    """

    attempt: AttemptId
    request: RequestId
    digest: str = ""
    repeats: tuple[Constraint, ...] = ()


Signature = tuple[
    Resources,
    tuple[Constraint, ...],
    tuple[str, ...],
    tuple[CoschedulingConfig, int, int, bool] | None,
    float,
]
"""Resources, constraints, tolerations, the shape of a gang, and the time limit."""


class Job(Record, kw_only=True):
    """A job. The fields up to `origin` are as submitted; the fields from `adopted` on are its progress.

    `command` is the argument vector, executed unchanged. Times are seconds since the epoch, durations are
    seconds, 0 means no limit. A gang has `coscheduling`; `slices` is the number of groups over which it spreads.
    """

    id: JobId
    command: tuple[str, ...] = ()
    resources: Resources = DEFAULT_RESOURCES
    replicas: int = 1
    slices: int = 1
    spread: bool = False  # the slices may be in several regions
    constraints: tuple[Constraint, ...] = ()
    tolerations: tuple[str, ...] = ()
    coscheduling: CoschedulingConfig | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names of variables; their values are never stored
    secret_files: Mapping[str, str] = field(default_factory=dict)  # files with the values of secrets, by name
    workspace: Workspace | None = None
    setup: str = ""
    env_preset: EnvPreset | None = None
    priority: Priority = Priority.NORMAL
    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    max_task_failures: int = 0
    keep_going: bool = False  # a failed task stops no other task; the job ends with its last task
    max_dispatch_failures: int = 10
    scheduling_timeout: float = 0.0
    timeout: float = 0.0
    setup_timeout: float = 1800.0
    grace: float = 30.0
    lease: float = 0.0  # the wrapper stops a task that was not polled for this long; 0: never
    silent_after: float | None = (
        None  # a task without output for these seconds is quiet; None: as in `limits:`
    )
    replace_lost: ReplaceLost | None = None  # None: according to the worker's configuration
    labels: Mapping[str, str] = field(default_factory=dict)
    after: tuple[JobId, ...] = ()
    ports: tuple[str, ...] = ()  # port names; each task gets a port number for each name, unique on its host
    signal: EarlySignal | None = None
    array: str = ""  # indexes of its tasks, in order: `0-9,20`
    max_running: int = 0  # maximum number of tasks running at a time; 0: no limit
    each_line: Lines | None = None
    image: str = ""  # container image in which its tasks run
    memory_limit: bool = False  # workers enforce the memory request as a limit if they can
    client: str = ""  # for an interactive job: the name of the client's lock file, below run/
    again: JobId | None = None  # the ended job that this job resubmits
    submitted_at: float = 0.0

    origin: Origin | None = None  # None: submitted by the operator
    adopted: Origin | None = None  # the parent's latest attempt that submitted this job again
    tried_again: tuple[JobId, ...] = ()  # the jobs that resubmit this job
    order: int = 0  # position among all jobs in the log
    cancelled: bool = False
    held_at: float | None = None  # time at which the operator held the job; None: not held
    released_at: float = 0.0  # time at which the operator last released the job
    rounds: int = 0  # placements of the gang so far; the current round is `rounds - 1`
    settled_rounds: int = 0  # rounds whose verdict is in the log
    failed_rounds: int = 0  # charged against max_retries_failure
    preempted_rounds: int = 0  # charged against max_retries_preemption
    refused_rounds: int = 0  # consecutive refusals by workers
    last_task_ended_at: float = 0.0  # set only with `max_running`: another task may start after this time
    end: End | None = None

    @property
    def signature(self) -> Signature:
        """The job's requirements on workers. Jobs with equal requirements have equal signatures."""
        gang = self.coscheduling
        shape = None if gang is None else (gang, self.slices, self.replicas, self.spread)
        return self.resources, self.constraints, self.tolerations, shape, self.timeout

    @property
    def is_gang(self) -> bool:
        return self.coscheduling is not None

    @property
    def has_set_up(self) -> bool:
        """True if a worker unpacks files or runs a set-up command before it starts a task."""
        return bool(self.workspace or self.setup)

    @property
    def is_single_script(self) -> bool:
        """True if the workspace contains only the job script. iris makes the script executable."""
        shipped = self.workspace
        return shipped is not None and shipped.files == 1 and self.command[0] == f"./{shipped.name}"

    @property
    def indexes(self) -> tuple[int, ...]:
        """The array index of each task, by task number; empty if the job is not an array."""
        if self.array:
            return indexes_of(self.array)
        return tuple(range(self.replicas)) if self.each_line is not None else ()

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        return task_ids_of(self.id, self.replicas)


class JobRequest(Struct, frozen=True, kw_only=True):
    """The fields of a job file, a command line or a call of the Python client. None: the field is not given.

    `workdir` is a directory on this machine, `job_script` the absolute path of a program. Before iris accepts the
    request, it packs both into `workspace` and stores `each_line` as `lines`. `memory_default` is the memory that the
    job gets if `memory` is not given; it sets no limit. `max_task_failures_default` replaces a missing
    `max_task_failures`, except in gangs. `again` is an ended job whose fields are the defaults. `failed`: submit only
    the tasks of this array that did not succeed.
    """

    name: str | None = None
    command: tuple[str, ...] | None = None
    tpu: str | None = None
    gpu: str | None = None
    cpu: float | None = None
    memory: int | None = None
    replicas: int | None = None
    slices: int | None = None
    spread: bool | None = None
    constraints: tuple[Constraint, ...] | None = None
    tolerate: tuple[str, ...] | None = None
    group_by: str | None = None
    env: Mapping[str, str] | None = None
    secrets: tuple[str, ...] | None = None  # NAME, or NAME=@/absolute/path of a file
    workdir: str | None = None
    workspace: Workspace | None = None
    setup: str | None = None
    env_preset: EnvPreset | None = None
    priority: Priority | None = None
    max_retries_failure: int | None = None
    max_retries_preemption: int | None = None
    max_task_failures: int | None = None
    keep_going: bool | None = None
    scheduling_timeout: float | None = None
    timeout: float | None = None
    setup_timeout: float | None = None
    grace: float | None = None
    lease: float | None = None
    silent_after: float | None = None
    replace_lost: ReplaceLost | None = None
    labels: Mapping[str, str] | None = None
    after: tuple[str, ...] | None = None
    ports: tuple[str, ...] | None = None
    signal: str | None = None
    array: str | None = None
    each_line: tuple[str, ...] | None = None
    lines: Lines | None = None
    memory_default: int | None = None
    max_task_failures_default: int | None = None
    image: str | None = None
    client: str | None = None
    job_script: str | None = None
    inherit_constraints: bool | None = None  # False: a child job inherits no constraints
    again: str | None = None
    failed: bool | None = None
    force: bool | None = None


class MissingInputs(Struct, frozen=True, kw_only=True):
    """Open jobs that can't start from this machine: their `secrets` can't be read, or `files` are missing."""

    secrets: Mapping[JobId, Sequence[str]] = field(default_factory=dict)
    files: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def jobs(self) -> frozenset[JobId]:
        return frozenset((*self.secrets, *self.files))


NO_MISSING_INPUTS = MissingInputs()
