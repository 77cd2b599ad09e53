"""The queue of a cycle, and the scheduling timeouts of jobs."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from iris_cli.core import Job, JobId, Priority, Signature, Task, TaskId, TaskState, depth_of, root_of
from iris_cli.core.model.waiting import competes_since

_PENDING = TaskState.PENDING

TasksByJob = dict[JobId, list[Task]]


_QueueKey = int | tuple[float, ...]
Entry = tuple[_QueueKey, float, JobId, Job, list[Task], int, bool]
"""A job and its pending tasks. A gang is placed as a whole, the tasks of other jobs are placed one after another.

The fields: the queue key, submission time and id of the job, which give the order of entries; the job; its pending
tasks by index; the index in `Queue.samples` of a job with its signature; True if its scheduling timeout has expired."""


class Queue(NamedTuple):
    """The entries in order. `samples`: one job of each signature; `sample_indexes`: its index, by signature."""

    entries: list[Entry]
    samples: list[Job]
    sample_indexes: dict[Signature, int]
    tasks_of_unknown_jobs: list[TaskId]


def build_queue(
    pending: Iterable[Task] | TasksByJob, get_job: Callable[[JobId], Job | None], now: float
) -> Queue:
    """Return the queue. Order: priority, deepest child jobs first, age of the root job, then age of the job.

    A job is older than another if it was submitted earlier in the log (`Job.order`), because clocks may be wrong.
    """
    children: dict[Priority, list[Entry]] = {each: [] for each in Priority}
    roots: dict[Priority, list[Entry]] = {each: [] for each in Priority}
    samples: list[Job] = []
    sample_indexes: dict[Signature, int] = {}
    tasks_of_unknown_jobs: list[TaskId] = []
    for job_id, tasks in group_by_job(pending).items():
        job = get_job(job_id)
        if job is None:
            tasks_of_unknown_jobs += [task.id for task in tasks]
            continue
        at, sample = job.submitted_at, sample_indexes.setdefault(job.signature, len(samples))
        if sample == len(samples):
            samples.append(job)
        is_timed_out = has_timed_out(job, get_job, now)
        if "/" in job_id:
            root = get_job(root_of(job_id)) or job
            key = (-depth_of(job_id), root.order, root.submitted_at, job.order)
            children[job.priority].append((key, at, job_id, job, tasks, sample, is_timed_out))
        else:
            roots[job.priority].append((job.order, at, job_id, job, tasks, sample, is_timed_out))
    entries: list[Entry] = []
    for priority in Priority:
        entries += sorted(children[priority])  # no two entries are equal, because their ids differ
        entries += sorted(roots[priority])
    return Queue(entries, samples, sample_indexes, sorted(tasks_of_unknown_jobs))


def has_timed_out(job: Job, get_job: Callable[[JobId], Job | None], now: float) -> bool:
    """Return whether the job has been in the queue for longer than its `scheduling_timeout` (0: no limit)."""
    return 0 < job.scheduling_timeout < now - job.submitted_at and (
        not (job.after or job.held_at is not None or job.released_at)
        or job.scheduling_timeout < now - competes_since(job, get_job)
    )


def split_timed_out(job: Job, tasks: list[Task], now: float) -> tuple[list[Task], list[Task]]:
    """Split the tasks of a job whose scheduling timeout has expired: tasks that must end, and the rest.

    Only tasks without any attempt time out; a gang times out as a whole or not at all. If the job has `max_running`,
    the timeout of its first `max_running` tasks starts at the submission, and of the others when a task last ended.
    """
    if job.is_gang:
        placed_once = job.rounds > 0 or any(task.attempts for task in tasks)
        return ([], tasks) if placed_once else (tasks, [])
    only_first = job.max_running > 0 and now - job.last_task_ended_at <= job.scheduling_timeout
    limit = job.max_running if only_first else job.replicas
    late = [task for task in tasks if not task.attempts and task.index < limit]
    return late, [task for task in tasks if task.attempts or task.index >= limit]


def group_by_job(pending: Iterable[Task] | TasksByJob) -> TasksByJob:
    """Return the pending tasks of each job, ordered by index. A mapping is returned unchanged."""
    if isinstance(pending, dict):
        return pending
    found: TasksByJob = {}
    unsorted_jobs: dict[JobId, None] = {}
    job, tasks, last = None, [], -1
    for task in pending:
        if task.state is _PENDING:
            job_id, index = task.id.job, task.id.index
            if job_id is not job:  # usually the tasks of a job are adjacent
                job = job_id
                tasks = found.setdefault(job, [])
                last = tasks[-1].id.index if tasks else -1
            if index <= last:  # usually they are in order
                unsorted_jobs[job] = None
            tasks.append(task)
            last = index
    for job in unsorted_jobs:
        found[job] = _sort_by_index(found[job])
    return found


def _sort_by_index(tasks: list[Task]) -> list[Task]:
    """Return the tasks in ascending order of their indexes, each index once."""
    by_index = {task.id.index: task for task in tasks}
    return [by_index[index] for index in sorted(by_index)]
