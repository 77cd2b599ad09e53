"""The bytes of a snapshot: JSON values, one in each line, of which few need to be read.

    {"form":3,"meaning":1,"position":{...},...,"crc":"9a27e113"}
    {"fleet":{...},"jobs":[...],"last":[...]}      workers, slices, open jobs with their tasks
    ["train"]                                      the ids of the open jobs
    ["a","b"]                                      the ids of the jobs in the pages
    {"v4a-0":{...}}                                attempts that have ended and whose files are still there, by worker
    {"a":{...},"b":{...}}                          a page: jobs that ended for good, by id; then the next page

The first line has its own checksum, and knows place and checksum of each other line. Types are the schema: nothing is
encoded field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Final

from msgspec import Raw, Struct

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.job import Job
from iris_cli.core.task import Task
from iris_cli.errors import IrisError
from iris_cli.journal.position import Position

FORM: Final = 3
MEANING: Final = 1
"""Raise it when the same log comes to other records than before, or when their types change. A test tells you."""


class DamagedSnapshotError(Exception):
    """A part of the snapshot isn't what was written."""


@contextmanager
def as_written() -> Iterator[None]:
    """Around code that decodes a part: any other error there means that the part is damaged."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RecursionError, IrisError) as error:
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


class Alike(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """So many tasks that follow each other and differ only in their ids."""

    count: int
    first: Task


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
    """All that is needed at once. `fleet` is the cluster without jobs and outputs; `last`: jobs that ended last."""

    fleet: Cluster
    jobs: tuple[Entry, ...]
    last: tuple[JobId, ...]


Entries = Mapping[str, Raw]
"""A page: jobs by their ids, each still encoded."""


def whole_in(cluster: Cluster, job: JobId) -> Whole:
    """Return a job of a cluster. Raises KeyError."""
    return Whole(cluster.jobs[job], tuple(cluster.tasks_of(job)), cluster.children.get(job, ()))


def entry_of(whole: Whole) -> Entry:
    return Entry(job=whole.job, tasks=tuple(_alike(whole.tasks)), children=whole.children)


def whole_of(entry: Entry) -> Whole:
    tasks = [task for alike in entry.tasks for task in _expanded(alike)]
    return Whole(entry.job, tuple(tasks), entry.children)


def _alike(tasks: Iterable[Task]) -> Iterator[Alike]:
    first, count = None, 0
    for task in tasks:
        if first is not None and not task.attempts and _with_id(first, task.id) == task:
            count += 1
            continue
        if first is not None:
            yield Alike(count, first)
        first, count = task, 1
    if first is not None:
        yield Alike(count, first)


def _expanded(alike: Alike) -> Iterator[Task]:
    yield alike.first
    job, index = alike.first.id.job, alike.first.id.index
    for other in range(index + 1, index + alike.count):
        yield _with_id(alike.first, TaskId(job, other))


def _with_id(task: Task, task_id: TaskId) -> Task:
    other = copy(task)
    other.id = task_id
    return other
