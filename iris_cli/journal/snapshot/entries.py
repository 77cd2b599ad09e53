"""What stands in a snapshot, as the log's codec writes it: a job with its tasks, the fleet, and outputs.

What reads raises ValueError, TypeError or KeyError for what isn't of this kind.
"""

from __future__ import annotations

import re

from msgspec import Struct

from iris_cli.core.cluster import Cluster
from iris_cli.core.endpoints import Announced
from iris_cli.core.ids import AttemptId, JobId, WorkerId, parse_attempt_id
from iris_cli.core.job import Job
from iris_cli.core.outputs import Outputs
from iris_cli.core.slice import GroupRecord, Keeper, Slice
from iris_cli.core.task import Task
from iris_cli.core.worker import Ghost, Worker
from iris_cli.journal.codec import encode
from iris_cli.journal.position import Header as LogHeader
from iris_cli.journal.position import sealed
from iris_cli.journal.snapshot.form import DamagedSnapshotError

_ID = re.compile(rb'\{"id":"([^"]+)",')  # how the line of a job begins
LISTED = re.compile(rb'^\{"id":"([^"]+)","order":(\d+),"replicas":(\d+)(,"children":)?', re.MULTILINE)
"""What is said of it before it is read."""


class Whole(Struct, frozen=True):
    """A job with its tasks, by index, and its children."""

    job: Job
    tasks: tuple[Task, ...]
    children: tuple[JobId, ...]


class JobEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job and what became of it; a task that nothing has happened to is left out."""

    id: JobId
    order: int
    replicas: int
    children: tuple[JobId, ...] = ()
    job: Job
    tasks: tuple[Task, ...]

    def whole(self) -> Whole:
        happened = {task.id: task for task in self.tasks}
        tasks = tuple(happened.get(task) or Task(id=task) for task in self.job.task_ids)
        return Whole(self.job, tasks, self.children)


class Texts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outputs of a worker, as texts that are read only when somebody asks for them."""

    full: tuple[str, ...]
    last: str
    asked_at: float | None


class Now(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is needed at once. `program` and `log` are those of the position; `outputs` counts workers that have some.

    `last` are the jobs that ended last.
    """

    name: str
    workers: tuple[Worker, ...]
    ghosts: dict[WorkerId, tuple[Ghost, ...]]
    endpoints: dict[AttemptId, Announced]
    slices: tuple[Slice, ...]
    scale_groups: tuple[GroupRecord, ...]
    keeper: Keeper | None
    program: str
    log: LogHeader
    outputs: int
    last: tuple[JobId, ...]
    jobs: tuple[JobEntry, ...]

    def fleet(self) -> Cluster:
        """The cluster without its jobs and outputs."""
        return Cluster(
            name=self.name,
            workers={worker.id: worker for worker in self.workers},
            ghosts=self.ghosts,
            endpoints=self.endpoints,
            slices={each.name: each for each in self.slices},
            scale_groups={each.name: each for each in self.scale_groups},
            keeper=self.keeper,
        )


def entry_of(cluster: Cluster, job: Job) -> JobEntry:
    return JobEntry(
        id=job.id,
        order=job.order,
        replicas=job.replicas,
        children=cluster.children.get(job.id, ()),
        job=job,
        tasks=tuple(task for task in cluster.tasks_of(job.id) if task != Task(id=task.id)),
    )


def job_line(cluster: Cluster, job: Job) -> bytes:
    return sealed(encode(entry_of(cluster, job))[:-1])[:-1] + b",\n"


def id_of(line: bytes) -> bytes:
    """The job that a line is about. Raises DamagedSnapshotError."""
    match = _ID.match(line)
    if match is None:
        raise DamagedSnapshotError("a job")
    return match[1]


def texts_of(outputs: Outputs) -> Texts:
    return Texts(
        full=tuple(" ".join(batch) for batch in outputs.full),
        last=" ".join(outputs.last),
        asked_at=outputs.asked_at,
    )


def outputs_in(texts: Texts) -> Outputs:
    """Raises IrisError for what `texts_of` did not make."""
    full, last = map(_attempts, texts.full), _attempts(texts.last)
    return Outputs(full=tuple(full), last=last, asked_at=texts.asked_at)


def _attempts(text: str) -> tuple[AttemptId, ...]:
    return tuple(map(parse_attempt_id, text.split()))
