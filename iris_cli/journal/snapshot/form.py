"""The bytes of a snapshot: JSON values, one in each line, of which few need to be read.

    {"form":4,"meaning":2,"position":{...},...,"crc":"9a27e113"}
    {"fleet":{...},"jobs":[...],"claims":{...},"last":[...]}      workers, slices, open jobs with their tasks
    ["train"]                                      the ids of the open jobs
    ["a","b"]                                      the ids of the jobs in the pages
    {"v4a-0":{...}}                                attempts that have ended and whose files are still there, by worker
    {"a":{...},"b":{...}}                          a page: jobs that ended for good, by id; then the next page

The first line has its own checksum, and knows place and checksum of each other line. Types are the schema: nothing is
encoded field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import chain, repeat
from typing import Final

from msgspec import Raw, Struct

from iris_cli.core import AttemptId, Claim, Cluster, Job, JobId, Task, TaskId, Worker, WorkerId
from iris_cli.errors import IrisError
from iris_cli.journal.log.position import Position

FORM: Final = 4
MEANING: Final = 8
"""Raise it when the same log comes to other records than before, or when their types change. A test tells you."""


class DamagedSnapshotError(Exception):
    """A part of the snapshot isn't what was written."""


@contextmanager
def as_written() -> Iterator[None]:
    """Around code that decodes a part: any other error there means that the part is damaged."""
    try:
        yield
    except (ValueError, TypeError, LookupError, RecursionError, IrisError) as error:
        raise DamagedSnapshotError(str(error)) from error


class Piece(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a line stands behind the first one, in bytes."""

    start: int
    size: int
    crc: int


class Page(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A line with jobs that ended for good: those from `first` on."""

    first: JobId
    piece: Piece


class Moment(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A snapshot of an earlier moment. `crc` is that of its first line.

    No transaction behind the moment before, up to this one, is older than `earliest`.
    """

    seq: int
    crc: str
    earliest: float


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line. `moments` are those in the archive that it goes on from, the oldest first.

    `jobs`, `tasks` and `parents` are the lengths of the cluster's tables.
    """

    form: int = FORM
    meaning: int = MEANING
    position: Position
    moments: tuple[Moment, ...] = ()
    jobs: int
    tasks: int
    parents: int
    live: Piece
    open: Piece
    ended: Piece
    outputs: Piece
    pages: tuple[Page, ...] = ()


class Nameless(Task, kw_only=True):
    """A task as it is written: which one it is follows from its place in its job."""

    id: TaskId = TaskId(JobId("-"), 0)


class Alike(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """So many tasks that follow each other and differ only in their ids."""

    count: int
    task: Nameless


Place = tuple[int, int, int]
"""A live attempt: the place of its job among the open ones, the index of its task, its own number."""


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job, its tasks and its children."""

    job: Job
    tasks: tuple[Alike, ...]
    children: tuple[JobId, ...] = ()


class Whole(Struct, frozen=True):
    """A job with its tasks, by index, and its children, as the tables of a cluster have them."""

    job: Job
    tasks: tuple[Task, ...]
    children: tuple[JobId, ...]


class Live(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is needed at once. `fleet` is the cluster without jobs, outputs and claims; `claims` are the attempts
    that hold something of a worker, in order; `last`: jobs that ended last.
    """

    fleet: Cluster
    jobs: tuple[Entry, ...]
    claims: dict[WorkerId, tuple[Place, ...]]
    last: tuple[JobId, ...]


Entries = Mapping[str, Raw]
"""A page: jobs by their ids, each still encoded."""


def whole_in(cluster: Cluster, job: JobId) -> Whole:
    """Return a job of a cluster. Raises KeyError."""
    return Whole(cluster.jobs[job], tuple(cluster.tasks_of(job)), cluster.children.get(job, ()))


def entry_of(whole: Whole) -> Entry:
    return Entry(job=whole.job, tasks=tuple(_alike(whole.tasks)), children=whole.children)


def whole_of(entry: Entry) -> Whole:
    """Raises ValueError if it has not as many tasks as its job."""
    tasks = chain.from_iterable(repeat(alike.task, alike.count) for alike in entry.tasks)
    named = [_named(task, task_id) for task, task_id in zip(tasks, entry.job.task_ids, strict=True)]
    return Whole(entry.job, tuple(named), entry.children)


def _alike(tasks: Iterable[Task]) -> Iterator[Alike]:
    found, count = None, 0
    for task in map(_nameless, tasks):
        if found is not None and not task.attempts and found == task:
            count += 1
            continue
        if found is not None:
            yield Alike(count, found)
        found, count = task, 1
    if found is not None:
        yield Alike(count, found)


def _nameless(task: Task) -> Nameless:
    return Nameless(
        state=task.state,
        attempts=task.attempts,
        failures=task.failures,
        preemptions=task.preemptions,
        refusals=task.refusals,
        end=task.end,
    )


def _named(task: Nameless, task_id: TaskId) -> Task:
    return Task(
        id=task_id,
        state=task.state,
        attempts=task.attempts,
        failures=task.failures,
        preemptions=task.preemptions,
        refusals=task.refusals,
        end=task.end,
    )


def live_of(cluster: Cluster, opened: Sequence[Whole], last: Sequence[JobId]) -> Live:
    """What is needed at once of a cluster with these open jobs."""
    places = {whole.job.id: place for place, whole in enumerate(opened)}
    fleet = copy(cluster)
    fleet.jobs, fleet.tasks, fleet.children, fleet.outputs, fleet.past = {}, {}, {}, {}, None
    fleet.workers = {worker: _without_claims(record) for worker, record in cluster.workers.items()}
    claims = {
        worker: tuple((places[each.task.job], each.task.index, each.number) for each in record.claims)
        for worker, record in cluster.workers.items()
        if record.claims
    }
    return Live(fleet=fleet, jobs=tuple(map(entry_of, opened)), claims=claims, last=tuple(last))


def _without_claims(worker: Worker) -> Worker:
    bare = copy(worker)
    bare.claims = {}
    return bare


def opened(live: Live) -> list[Whole]:
    """Return the open jobs, and give the workers of the fleet their claims. Raises ValueError, KeyError, IndexError."""
    wholes = [whole_of(entry) for entry in live.jobs]
    without_gpus = [Claim.of(whole.job.resources) for whole in wholes]
    for worker, places in live.claims.items():
        claims = live.fleet.workers[worker].claims
        for job, index, number in places:
            task = wholes[job].tasks[index]
            gpus = task.attempts[number].gpus
            claim = Claim.of(wholes[job].job.resources, gpus) if gpus else without_gpus[job]
            claims[AttemptId(task.id, number)] = claim
    return wholes
