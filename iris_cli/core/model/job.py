"""A job: what a user launches. `JobRequest` is what was asked for, `Job` what was accepted and became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct, field

from iris_cli.core.constraints import Constraint
from iris_cli.core.ids import AttemptId, JobId, RequestId, TaskId, clip
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
"""Those that can mean something to a program: names that every shell's `kill` knows, with their numbers on Linux."""


class EarlySignal(Value, frozen=True):
    """The signal `name` (without SIG) for the processes of a task, `lead` seconds before its time limit."""

    name: str
    lead: float = DEFAULT_LEAD


def parse_early_signal(text: str) -> EarlySignal:
    """From `USR1@120`, `SIGUSR1@2m`, or `USR1` alone: a minute before. Raises UsageError."""
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
    """Derived from the tasks of a job (`Cluster.job_state`), never stored."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    UNSCHEDULABLE = "UNSCHEDULABLE"

    @property
    def terminal(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING)


class Priority(StrEnum):
    """Who goes first. `rank` orders them: 0 is served first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        return {"high": 0, "normal": 1, "low": 2}[self.value]

    __hash__ = str.__hash__  # that of the text it is equal to; an enum's own one is much slower


class EnvPreset(StrEnum):
    """Environment variables that make a gang on ordinary hosts find each other."""

    JAX = "jax"
    SLURM = "slurm"
    TORCHRUN = "torchrun"


class ReplaceLost(StrEnum):
    """For which workers a long silence is taken for death."""

    NEVER = "never"
    PREEMPTIBLE = "preemptible"
    ALWAYS = "always"


class CoschedulingConfig(Value, frozen=True):
    """The tasks of the job form a gang, placed on workers with an equal value of the `group_by` attribute."""

    group_by: str

    def __post_init__(self) -> None:
        if not self.group_by.strip():
            raise ValueError("coscheduling.group_by is empty")


class Workspace(Value, frozen=True, kw_only=True):
    """A directory that was packed when the job was submitted, and goes with its tasks.

    `hash` is the SHA-256 of the tar file in hexadecimal digits, `size` the bytes of that (not compressed), `files`
    how many files and links are in it; `name` is what people call the directory. Raises ValueError.
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
    """The lines of a file, one for each task. They are kept in the state directory, under their SHA-256.

    `count` is how many they are; all of them together, each with a line end, take `size` bytes. Raises ValueError.
    """

    hash: str
    count: int
    size: int

    def __post_init__(self) -> None:
        if _SHA256.fullmatch(self.hash) is None or self.count < 1 or self.size < self.count:
            raise ValueError("lines have a SHA-256 of 64 hexadecimal digits, and there is at least one")


_SHA256 = pattern("[0-9a-f]{64}")


class Origin(Value, frozen=True):
    """Who submitted a job from inside a task: the attempt, and the id of its request.

    `digest` tells apart what was asked for, but for the name: the same again is the same job. `repeats` are those
    constraints of the parent that the request names, too.
    """

    attempt: AttemptId
    request: RequestId
    digest: str = ""
    repeats: tuple[Constraint, ...] = ()


Signature = tuple[
    Resources, tuple[Constraint, ...], tuple[str, ...], tuple[CoschedulingConfig, int, int, bool] | None
]
"""Resources, constraints, tolerations, and the shape of a gang."""


class Job(Record, kw_only=True):
    """A job as submitted, and below `order` what became of it.

    `command` is the argument vector, executed as it is. Times are seconds since the epoch, durations are
    seconds, 0 means no limit. A gang has `coscheduling`; `slices` says over how many groups it spreads.
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
    secrets: tuple[str, ...] = ()  # names of variables; their values are nowhere
    secret_files: Mapping[str, str] = field(default_factory=dict)  # where those of some of them are read from
    workspace: Workspace | None = None
    setup: str = ""
    env_preset: EnvPreset | None = None
    priority: Priority = Priority.NORMAL
    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    max_task_failures: int = 0
    keep_going: bool = False  # a task that ends for good stops no other; the job ends with its last task
    max_dispatch_failures: int = 10
    scheduling_timeout: float = 0.0
    timeout: float = 0.0
    setup_timeout: float = 1800.0
    grace: float = 30.0
    lease: float = 0.0  # its wrapper stops a task that nobody asked about for so long; 0: never
    silent_after: float | None = None  # without output, until marked quiet; 0: never; None: the cluster's
    replace_lost: ReplaceLost | None = None  # None: as its worker's configuration says
    labels: Mapping[str, str] = field(default_factory=dict)
    after: tuple[JobId, ...] = ()
    ports: tuple[str, ...] = ()  # names: each task gets a number for each, of its own on its host
    signal: EarlySignal | None = None
    array: str = ""  # the indexes of its tasks, in order: `0-9,20`
    max_running: int = 0  # how many of its tasks may run at a time; 0: all
    each_line: Lines | None = None
    image: str = ""  # of the container that its tasks run in
    memory_limit: bool = False  # its workers hold each task to the memory that it asks for, where they can
    client: str = ""  # the client whose terminal its program runs on: the name of its lock under run/
    again: JobId | None = None  # the ended job that this one is submitted again from
    submitted_at: float = 0.0

    origin: Origin | None = None  # None: the operator submitted it
    adopted: Origin | None = None  # the last later attempt of its parent that submitted the same again
    tried_again: tuple[JobId, ...] = ()  # the jobs submitted again from this one
    order: int = 0  # position in the log among all jobs: breaks ties of `submitted_at`
    cancelled: bool = False
    held_at: float | None = None  # since when its operator holds it back; None: not held
    released_at: float = 0.0  # when it was last released
    rounds: int = 0  # placements of the gang so far; the present round is `rounds - 1`
    settled_rounds: int = 0  # rounds whose verdict is in the log
    failed_rounds: int = 0  # charged against max_retries_failure
    preempted_rounds: int = 0  # charged against max_retries_preemption
    refused_rounds: int = 0  # refusals by workers in a row
    last_task_ended_at: float = 0.0  # with `max_running` only: that end let the throttle admit another task
    end: End | None = None

    @property
    def signature(self) -> Signature:
        """The job's demands on workers: equal for jobs with the same demands, and for no others."""
        gang = self.coscheduling
        shape = None if gang is None else (gang, self.slices, self.replicas, self.spread)
        return self.resources, self.constraints, self.tolerations, shape

    @property
    def is_gang(self) -> bool:
        return self.coscheduling is not None

    @property
    def is_script_alone(self) -> bool:
        """Whether its workspace is a job script, which --workdir would ship without its x-bit."""
        shipped = self.workspace
        return shipped is not None and shipped.files == 1 and self.command[0] == f"./{shipped.name}"

    @property
    def indexes(self) -> tuple[int, ...]:
        """Of an array: which index each of its tasks has; empty for other jobs."""
        if self.array:
            return indexes_of(self.array)
        return tuple(range(self.replicas)) if self.each_line is not None else ()

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        return _task_ids(self.id, self.replicas)


@lru_cache(maxsize=1024)
def _task_ids(job: JobId, replicas: int) -> tuple[TaskId, ...]:
    """Kept, for the state of a job is asked for with each batch of answers about its tasks."""
    return tuple(TaskId(job, index) for index in range(replicas))


class JobRequest(Struct, frozen=True, kw_only=True):
    """What a job file, the command line or the Python client asks for. None means: not said.

    `workdir` is a directory here, `job_script` the absolute path of a program; `workspace` is what they were packed
    to, before the request is accepted. So are `lines` what became of those of `each_line`. `memory_default` counts if
    `memory` is not said, and limits nothing. `again` is the ended job
    that lends the fields that are not said; with `failed` only the tasks of an array that did not succeed.
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
    image: str | None = None
    client: str | None = None
    job_script: str | None = None
    inherit_constraints: bool | None = None  # False: a child job takes over none, whatever it has of its own
    again: str | None = None
    failed: bool | None = None
    force: bool | None = None


class Missing(Struct, frozen=True, kw_only=True):
    """Open jobs that can't start here: for `secrets` that can't be read, with reasons, or `files` that are gone."""

    secrets: Mapping[JobId, Sequence[str]] = field(default_factory=dict)
    files: Mapping[JobId, str] = field(default_factory=dict)

    @property
    def jobs(self) -> frozenset[JobId]:
        return frozenset((*self.secrets, *self.files))


NOTHING_MISSING = Missing()
