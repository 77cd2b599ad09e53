"""Who goes first, and whose deadline has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter, lt

from iris_cli.core.ids import JobId, TaskId, depth_of, root_of
from iris_cli.core.job import Job, Priority
from iris_cli.core.task import Task, TaskState

_PENDING = TaskState.PENDING
_PRIORITY = {priority: priority.rank for priority in Priority}

TasksByJob = dict[JobId, list[Task]]

Entry = tuple[Job, list[Task]]
"""A job and its pending tasks, by index. A gang competes as a whole, other tasks one after another."""

_Rank = tuple[int, int, int, float, int, float, JobId]


def entries_of(
    pending: Iterable[Task] | TasksByJob, get_job: Callable[[JobId], Job | None]
) -> tuple[list[Entry], list[TaskId]]:
    """The queue in the order in which it is served, and the tasks whose job nobody knows.

    Priority, then deeper jobs before their ancestors, then the older root job, then the order of submission,
    then the task index. Age is the position in the log, not the clock, which may have been wrong.
    """
    queue: list[tuple[_Rank, Job, list[Task]]] = []
    orphans: list[TaskId] = []
    for job_id, tasks in by_job(pending).items():
        job = get_job(job_id)
        if job is None:
            orphans += [task.id for task in _by_index(tasks)]
        else:
            queue.append((_rank(job, get_job), job, tasks if len(tasks) == 1 else _by_index(tasks)))
    queue.sort(key=itemgetter(0))  # no two ranks are equal: the last part is the job's id
    return [(job, tasks) for _, job, tasks in queue], sorted(orphans)


def split_overdue(job: Job, tasks: list[Task], now: float) -> tuple[list[Task], list[Task]]:
    """The tasks that were never placed within the job's `scheduling_timeout`, and the rest.

    A gang is one: all or none of it. What was placed once has no such deadline any more.
    """
    if not 0 < job.scheduling_timeout < now - job.submitted_at:
        return [], tasks
    if job.is_gang:
        placed_once = job.rounds > 0 or any(task.attempts for task in tasks)
        return ([], tasks) if placed_once else (tasks, [])
    return [task for task in tasks if not task.attempts], [task for task in tasks if task.attempts]


def by_job(pending: Iterable[Task] | TasksByJob) -> TasksByJob:
    """Those of the tasks that are pending, by job; what is grouped already stays as it is."""
    if isinstance(pending, dict):
        return pending
    found: TasksByJob = {}
    job, tasks = None, []
    for task in pending:
        if task.state is _PENDING:
            if task.id.job is not job:  # those of a job mostly stand together
                job = task.id.job
                tasks = found.setdefault(job, [])
            tasks.append(task)
    return found


def _rank(job: Job, get_job: Callable[[JobId], Job | None]) -> _Rank:
    name, order, at = job.id, job.order, job.submitted_at
    if "/" not in name:
        return _PRIORITY[job.priority], 0, order, at, order, at, name
    root = get_job(root_of(name)) or job
    return _PRIORITY[job.priority], -depth_of(name), root.order, root.submitted_at, order, at, name


def _by_index(tasks: list[Task]) -> list[Task]:
    """Each index once, in ascending order: as they nearly always are already."""
    indexes = [task.id.index for task in tasks]
    if all(map(lt, indexes, indexes[1:])):
        return tasks
    by_index = dict(zip(indexes, tasks, strict=True))
    return [by_index[index] for index in sorted(by_index)]
