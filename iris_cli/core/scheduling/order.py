"""Who goes first, and whose deadline has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from iris_cli.core.ids import JobId, TaskId, depth_of, root_of
from iris_cli.core.job import Job, Priority
from iris_cli.core.task import Task, TaskState

_PRIORITY = {priority: priority.rank for priority in Priority}


class Entry(NamedTuple):
    """The pending tasks of one job, by index. A gang competes as a whole, other tasks one after another."""

    job: Job
    tasks: list[Task]


def entries_of(
    pending: Iterable[Task], get_job: Callable[[JobId], Job | None]
) -> tuple[list[Entry], list[TaskId]]:
    """The queue in the order in which it is served, and the tasks whose job nobody knows.

    Priority, then deeper jobs before their ancestors, then the older root job, then the order of submission,
    then the task index. Age is the position in the log, not the clock, which may have been wrong.
    """
    by_job: dict[JobId, list[Task]] = {}
    for task in pending:
        if task.state is TaskState.PENDING:
            by_job.setdefault(task.id.job, []).append(task)
    queue: list[tuple[tuple[object, ...], Entry]] = []
    orphans: list[TaskId] = []
    for job_id, tasks in by_job.items():
        job = get_job(job_id)
        if job is None:
            orphans += (task.id for task in _by_index(tasks))
        else:
            queue.append((_rank(job, get_job), Entry(job, _by_index(tasks))))
    queue.sort()  # no two ranks are equal: the last part is the job's id
    return [entry for _, entry in queue], sorted(orphans)


def split_overdue(entry: Entry, now: float) -> tuple[list[Task], list[Task]]:
    """The tasks that were never placed within the job's `scheduling_timeout`, and the rest.

    A gang is one: all or none of it. What was placed once has no such deadline any more.
    """
    job, tasks = entry
    if not 0 < job.scheduling_timeout < now - job.submitted_at:
        return [], tasks
    if job.is_gang:
        placed_once = job.rounds > 0 or any(task.attempts for task in tasks)
        return ([], tasks) if placed_once else (tasks, [])
    return [task for task in tasks if not task.attempts], [task for task in tasks if task.attempts]


def _rank(job: Job, get_job: Callable[[JobId], Job | None]) -> tuple[object, ...]:
    root = job
    if "/" in job.id:
        root = get_job(root_of(job.id)) or job
    return (
        _PRIORITY[job.priority],
        -depth_of(job.id),
        root.order,
        root.submitted_at,
        job.order,
        job.submitted_at,
        job.id,
    )


def _by_index(tasks: list[Task]) -> list[Task]:
    if len(tasks) == 1:
        return tasks
    by_index = {task.id.index: task for task in tasks}
    return [by_index[index] for index in sorted(by_index)]
