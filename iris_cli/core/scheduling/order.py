"""The queue of a cycle, its order, and expired scheduling timeouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from iris_cli.core import Job, JobId, Priority, Signature, Task, TaskId, TaskState, depth_of, root_of
from iris_cli.core.model.waiting import competes_since

_PENDING = TaskState.PENDING

TasksByJob = dict[JobId, list[Task]]


_Age = int | tuple[float, ...]
Entry = tuple[_Age, float, JobId, Job, list[Task], int, bool]
"""A job and its pending tasks. A gang competes as a whole, other tasks one after another.

Its fields are the age, the time of submission and the id of the job (these three order the queue), the job, the pending
tasks by index, the number of the job's signature, and True if its scheduling timeout has expired."""


class Queue(NamedTuple):
    """The entries in order. `samples` has one job for each signature. `orphans` are tasks of unknown jobs."""

    entries: list[Entry]
    samples: list[Job]
    numbers: dict[Signature, int]
    orphans: list[TaskId]


def queue_of(
    pending: Iterable[Task] | TasksByJob, get_job: Callable[[JobId], Job | None], now: float
) -> Queue:
    """Return the queue. Order: priority, deepest child jobs first, age of the root job, then submission.

    The age is the position in the log, because clocks may be wrong.
    """
    children: dict[Priority, list[Entry]] = {each: [] for each in Priority}
    roots: dict[Priority, list[Entry]] = {each: [] for each in Priority}
    samples: list[Job] = []
    numbers: dict[Signature, int] = {}
    orphans: list[TaskId] = []
    for job_id, tasks in by_job(pending).items():
        job = get_job(job_id)
        if job is None:
            orphans += [task.id for task in tasks]
            continue
        at, number = job.submitted_at, numbers.setdefault(job.signature, len(samples))
        if number == len(samples):
            samples.append(job)
        overdue = is_overdue(job, get_job, now)
        if "/" in job_id:
            age = _age(job, get_job(root_of(job_id)) or job)
            children[job.priority].append((age, at, job_id, job, tasks, number, overdue))
        else:
            roots[job.priority].append((job.order, at, job_id, job, tasks, number, overdue))
    entries: list[Entry] = []
    for priority in Priority:
        entries += sorted(children[priority])  # no two entries are equal, because their ids differ
        entries += sorted(roots[priority])
    return Queue(entries, samples, numbers, sorted(orphans))


def is_overdue(job: Job, get_job: Callable[[JobId], Job | None], now: float) -> bool:
    """Return whether the job has competed for longer than its `scheduling_timeout` (0: no limit)."""
    return 0 < job.scheduling_timeout < now - job.submitted_at and (
        not (job.after or job.held_at is not None or job.released_at)
        or job.scheduling_timeout < now - competes_since(job, get_job)
    )


def split_overdue(job: Job, tasks: list[Task], now: float) -> tuple[list[Task], list[Task]]:
    """Return the tasks of an overdue job that end because they were never placed, and the other tasks.

    A gang ends as a whole or not at all. If the job has `max_running`, its first tasks compete since the submission,
    its other tasks since the last end of a task of the job.
    """
    if job.is_gang:
        placed_once = job.rounds > 0 or any(task.attempts for task in tasks)
        return ([], tasks) if placed_once else (tasks, [])
    held = job.max_running > 0 and now - job.last_task_ended_at <= job.scheduling_timeout
    limit = job.max_running if held else job.replicas
    late = [task for task in tasks if not task.attempts and task.index < limit]
    return late, [task for task in tasks if task.attempts or task.index >= limit]


def by_job(pending: Iterable[Task] | TasksByJob) -> TasksByJob:
    """Return the pending tasks by job, ordered by index. A mapping is returned unchanged."""
    if isinstance(pending, dict):
        return pending
    found: TasksByJob = {}
    disordered: dict[JobId, None] = {}
    job, tasks, last = None, [], -1
    for task in pending:
        if task.state is _PENDING:
            job_id, index = task.id.job, task.id.index
            if job_id is not job:  # mostly the tasks of a job are adjacent
                job = job_id
                tasks = found.setdefault(job, [])
                last = tasks[-1].id.index if tasks else -1
            if index <= last:  # mostly tasks are in order
                disordered[job] = None
            tasks.append(task)
            last = index
    for job in disordered:
        found[job] = _by_index(found[job])
    return found


def _age(child: Job, root: Job) -> tuple[float, ...]:
    return -depth_of(child.id), root.order, root.submitted_at, child.order


def _by_index(tasks: list[Task]) -> list[Task]:
    """Return the tasks in ascending order of their indexes, each index once."""
    by_index = {task.id.index: task for task in tasks}
    return [by_index[index] for index in sorted(by_index)]
