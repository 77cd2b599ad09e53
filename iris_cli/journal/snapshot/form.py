"""The format of a snapshot: one JSON value per line. Most commands read only a few of the lines.

    {"form":4,"meaning":2,"position":{...},...,"crc":"9a27e113"}
    {"fleet":{...},"jobs":[...],"claims":{...},"last":[...]}      workers, slices, open jobs with their tasks
    ["train"]                                      the ids of the open jobs
    ["a","b"]                                      the ids of the jobs in the pages
    {"v4a-0":{...}}                                ended attempts whose files are still on the worker, by worker
    {"a":{...},"b":{...}}                          a page: jobs that have ended, by id; then the next page

The first line has its own checksum, and the position and checksum of each other line. The types define the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import chain
from typing import Final

from msgspec import Raw, Struct

from iris_cli.core import AttemptId, Claim, Cluster, Job, JobId, Task, Worker, WorkerId
from iris_cli.core.model.task import NO_ID
from iris_cli.errors import IrisError
from iris_cli.journal.log.position import Position

FORM: Final = 4
MEANING: Final = 14
"""Version of the content. Increment it if the same log gives other records, or if types change. A test checks this."""


class DamagedSnapshotError(Exception):
    """A part of the snapshot is damaged."""


@contextmanager
def raising_damaged() -> Iterator[None]:
    """Turn decoding errors of the block into DamagedSnapshotError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, RecursionError, IrisError) as error:
        raise DamagedSnapshotError(str(error)) from error


class Piece(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Offset from the end of the first line, size in bytes, and checksum of a line."""

    start: int
    size: int
    crc: int


class Page(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A line of ended jobs, of which `first` is the first id."""

    first: JobId
    piece: Piece


class Archived(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An archived snapshot. `crc` is the checksum of its first line.

    `earliest` is a lower bound for the times of the transactions after the previous archived snapshot.
    """

    seq: int
    crc: str
    earliest: float


class FirstLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line. `moments` are the archived snapshots, oldest first. They have the jobs that ended earlier.

    `jobs`, `tasks` and `parents` are the lengths of the cluster's tables. `live`, `open`, `ended` and `outputs` are the
    next four lines, `pages` all others.
    """

    form: int = FORM
    meaning: int = MEANING
    position: Position
    moments: tuple[Archived, ...] = ()
    jobs: int
    tasks: int
    parents: int
    live: Piece
    open: Piece
    ended: Piece
    outputs: Piece
    pages: tuple[Page, ...] = ()


class RepeatedTask(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One of several consecutive tasks that differ only in their ids, and the number of these tasks."""

    count: int
    task: Task


AttemptIndex = tuple[int, int, int]
"""A live attempt: index of its job among the open jobs, index of its task, number of the attempt."""


class StoredJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job, its tasks and its children."""

    job: Job
    tasks: tuple[RepeatedTask, ...]
    children: tuple[JobId, ...] = ()


class FullJob(Struct, frozen=True):
    """A job with its tasks, by index, and its children, as in the tables of a cluster."""

    job: Job
    tasks: tuple[Task, ...]
    children: tuple[JobId, ...]


class Live(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part that every command needs. `fleet` is the cluster without jobs, outputs and claims.

    `jobs` are the open jobs, `last` are the jobs that ended last. `claims` are the attempts that hold
    resources of a worker, in order.
    """

    fleet: Cluster
    jobs: tuple[StoredJob, ...]
    claims: dict[WorkerId, tuple[AttemptIndex, ...]]
    last: tuple[JobId, ...]


StoredJobs = Mapping[str, Raw]
"""A page: encoded jobs by id."""


def job_in(cluster: Cluster, job: JobId, known: Sequence[Task] = ()) -> FullJob:
    """Return a job of a cluster; `known` are tasks of the job, in any order. Raises KeyError."""
    record = cluster.jobs[job]
    if len(known) != record.replicas:
        known = cluster.tasks_of(job)
    elif len(known) > 1:
        known = sorted(known, key=lambda task: task.id.index)
    return FullJob(record, tuple(known), cluster.children.get(job, ()))


def stored_job(full_job: FullJob) -> StoredJob:
    return StoredJob(
        job=full_job.job, tasks=tuple(_repeated_tasks(full_job.tasks)), children=full_job.children
    )


def expand_job(entry: StoredJob) -> FullJob:
    """Give the decoded tasks of a job their ids. Raises ValueError if the number of tasks is wrong."""
    tasks: list[Task] = []
    for decoded, task_id in zip(
        chain.from_iterable(map(_each_task, entry.tasks)), entry.job.task_ids, strict=True
    ):
        decoded.id = task_id
        tasks.append(decoded)
    return FullJob(entry.job, tuple(tasks), entry.children)


def _each_task(repeated: RepeatedTask) -> Iterable[Task]:
    task = repeated.task
    return (task,) if repeated.count == 1 else (copy(task) for _ in range(repeated.count))


def _repeated_tasks(tasks: Iterable[Task]) -> Iterator[RepeatedTask]:
    found, count = None, 0
    for task in map(_without_id, tasks):
        if found is not None and not task.attempts and found == task:
            count += 1
            continue
        if found is not None:
            yield RepeatedTask(count, found)
        found, count = task, 1
    if found is not None:
        yield RepeatedTask(count, found)


def _without_id(task: Task) -> Task:
    stored = copy(task)
    stored.id = NO_ID
    return stored


def live_part(cluster: Cluster, opened: Sequence[FullJob], last: Sequence[JobId]) -> Live:
    """Return the part of a snapshot that every command needs, for a cluster with these open jobs."""
    indexes = {full_job.job.id: index for index, full_job in enumerate(opened)}
    fleet = copy(cluster)
    fleet.jobs, fleet.tasks, fleet.children, fleet.outputs, fleet.past = {}, {}, {}, {}, None
    fleet.workers = {worker: _without_claims(record) for worker, record in cluster.workers.items()}
    claims = {
        worker: tuple((indexes[each.task.job], each.task.index, each.number) for each in record.claims)
        for worker, record in cluster.workers.items()
        if record.claims
    }
    return Live(fleet=fleet, jobs=tuple(map(stored_job, opened)), claims=claims, last=tuple(last))


def _without_claims(worker: Worker) -> Worker:
    bare = copy(worker)
    bare.claims = {}
    return bare


def open_jobs(live: Live) -> list[FullJob]:
    """Return the open jobs and restore the claims of workers. Raises ValueError, KeyError, IndexError."""
    full_jobs = [expand_job(entry) for entry in live.jobs]
    without_gpus = [Claim.of(full_job.job.resources) for full_job in full_jobs]
    for worker, attempts in live.claims.items():
        claims = live.fleet.workers[worker].claims
        for job, index, number in attempts:
            task = full_jobs[job].tasks[index]
            gpus = task.attempts[number].gpus
            claim = Claim.of(full_jobs[job].job.resources, gpus) if gpus else without_gpus[job]
            claims[AttemptId(task.id, number)] = claim
    return full_jobs
