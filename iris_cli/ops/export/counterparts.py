"""The counterparts of a job's fields in Slurm and in a JobSet. Notes of an export and the docs show them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from iris_cli.core import Constraint, Job, JobId
from iris_cli.core.constraint_syntax import format_constraint


class Engine(StrEnum):
    JOBSET = "jobset"
    SBATCH = "sbatch"


class ExportNote(Struct, frozen=True):
    """A note about a field. `lost`: the field is not exported. Otherwise the note says what the user must do."""

    field: str
    text: str
    lost: bool


class Counterpart(NamedTuple):
    """A field of a job file, and its counterpart in each engine, or ''."""

    field: str
    sbatch: str
    jobset: str
    attribute: str = ""  # name of the attribute of `Job`, if it differs from `field`

    def text(self, engine: Engine) -> str:
        return self.sbatch if engine is Engine.SBATCH else self.jobset


# fmt: off
COUNTERPARTS = (
    Counterpart("command", "the program of `srun`, unchanged", "the container's command, after a few lines of `sh`"),
    Counterpart("script", "the same, run by `sh`", "the same, run by `sh`", "command"),
    Counterpart("name", "`--job-name`", "`metadata.name` as a DNS label, and the annotation `iris/job`", "id"),
    Counterpart("tpu", "", "`google.com/tpu`, node selectors for accelerator and topology", "resources"),
    Counterpart("gpu", "`--gres=gpu:MODEL:N`", "`nvidia.com/gpu`; the model is lost", "resources"),
    Counterpart("cpu", "`--cpus-per-task`, rounded up", "`requests.cpu`", "resources"),
    Counterpart("memory", "`--mem`", "`requests.memory`", "resources"),
    Counterpart("replicas", "`--nodes` for a gang, otherwise `--array`", "`parallelism` and `completions`"),
    Counterpart("slices", "only `IRIS_NUM_SLICES`: Slurm chooses the nodes", "`replicas` of the replicated job"),
    Counterpart("array", "`--array`", "`completions`; `%N` becomes `parallelism`"),
    Counterpart("each_line", "in the script", "in the container's command"),
    Counterpart("workdir", "the script changes to it (shared file system)", "", "workspace"),
    Counterpart("env", "`export`", "`env`"),
    Counterpart("env_file", "`export`", "`env`", "env"),
    Counterpart("secrets", "`--export=NAME`, or read from its file", "`secretKeyRef`"),
    Counterpart("setup", "before each rank", "before the program, in its container"),
    Counterpart("env_preset", "Slurm's own `SLURM_*`; `export`", "set before the program"),
    Counterpart("ports", "numbers from the job id; may be in use", "fixed numbers: a pod has its own address"),
    Counterpart("image", "", "`image`"),
    Counterpart("labels", "", "labels, and the annotation `iris/labels`"),
    Counterpart("priority", "`low` becomes `--nice`; `high` is lost", ""),
    Counterpart("after", "`--dependency=afterok:ID`, at `sbatch`", ""),
    Counterpart("max_retries_failure", "`scontrol requeue`, counted by the script",
                "`maxRestarts` for a gang, otherwise `backoffLimitPerIndex`"),
    Counterpart("max_retries_preemption", "`--requeue`, without a limit", "rules for disruptions, without a limit"),
    Counterpart("max_task_failures", "", "`maxFailedIndexes`"),
    Counterpart("keep_going", "default; for `--fail-fast` the script cancels the others", "`maxFailedIndexes`"),
    Counterpart("replace_lost", "", ""),
    Counterpart("timeout", "`--time`, in whole minutes", "`activeDeadlineSeconds`, from when the pods are created"),
    Counterpart("scheduling_timeout", "", ""),
    Counterpart("setup_timeout", "", ""),
    Counterpart("grace", "", "`terminationGracePeriodSeconds`"),
    Counterpart("signal", "`--signal`, up to a minute earlier", ""),
    Counterpart("lease", "", ""),
    Counterpart("silent_after", "", ""),
    Counterpart("constraints", "", "`region`, `zone`, `preemptible` as node affinity; others are lost"),
    Counterpart("prefer", "", "", "constraints"),
    Counterpart("tolerate", "", "`tolerations`", "tolerations"),
    Counterpart("coscheduling", "one job of several nodes, chosen by Slurm", "for TPUs, one node pool per slice"),
    Counterpart("spread", "", ""),
)
# fmt: on
"""All fields of a job file except `force`, which is used only during the submission."""

_DEFAULT_JOB = Job(id=JobId("job"))
UNLIMITED = _DEFAULT_JOB.max_retries_preemption
"""Default of `max_retries_preemption`, which is exported as unlimited."""
_NOTED_ELSEWHERE = frozenset({"tpu", "constraints", "prefer", "workdir", "image"})
"""Fields for which the modules `jobset` and `sbatch` add notes."""


def lost_fields(job: Job, engine: Engine) -> list[ExportNote]:
    """Return a note on each field that the job sets and that has no counterpart in the engine."""
    return [
        lost_note(row.field)
        for row in COUNTERPARTS
        if not row.text(engine) and row.field not in _NOTED_ELSEWHERE and _is_set(job, row)
    ]


def lost_note(field: str, text: str = "no counterpart") -> ExportNote:
    """Return a note on a field that is not exported, or only in part."""
    return ExportNote(field, text, lost=True)


def to_do_note(field: str, text: str) -> ExportNote:
    """Return a note on an action required before the exported job can run."""
    return ExportNote(field, text, lost=False)


def lost_constraints(constraints: Iterable[Constraint]) -> list[ExportNote]:
    """Return a note for each of these constraints, which are not exported."""
    names = {False: "prefer", True: "constraints"}
    return [
        lost_note(names[each.required], f"no counterpart: {format_constraint(each)}") for each in constraints
    ]


def _is_set(job: Job, row: Counterpart) -> bool:
    name = row.attribute or row.field
    value: Any = getattr(job, name)
    return bool(value != getattr(_DEFAULT_JOB, name))
