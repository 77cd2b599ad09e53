"""The times for which jobs have competed for workers, gangs have been pending, and tasks have been quiet."""

from collections.abc import Callable, Iterable
from math import inf

from iris_cli.core import Cluster, Job, JobId, count, format_duration, format_indexes
from iris_cli.core.model.task import Attempt, AttemptState, Task, TaskState

_MINUTE = 60.0  # seconds: longer durations are shown in whole minutes


def competes_since(job: Job, get_job: Callable[[JobId], Job | None]) -> float:
    """Return the time since which the job may compete for workers; `inf` if it can't compete yet.

    It is the latest of its submission, the end of its hold, and the ends of the jobs in `after`. Unknown jobs are
    ignored.
    """
    since = max(job.submitted_at, job.released_at) if job.held_at is None else inf
    for dependency in map(get_job, job.after):
        if dependency is not None:
            since = max(since, dependency.end.at if dependency.end is not None else inf)
    return since


def overdue_since(cluster: Cluster, job: Job, patience: float, now: float) -> float | None:
    """Return the time since which a gang could have been placed; None if that is less than `patience` seconds ago.

    Return None also if the gang is placed or held, if the job is not a gang, or if `patience` is 0.
    """
    tasks = cluster.tasks_of(job.id) if job.is_gang and patience > 0 and job.end is None else ()
    if not tasks or any(task.state is not TaskState.PENDING for task in tasks):
        return None
    ends = (attempt.ended_at or 0.0 for task in tasks for attempt in task.attempts)
    since = max(competes_since(job, cluster.jobs.get), *ends, 0.0)  # `inf` if the gang is held
    return since if now - since >= patience else None


def describe_overdue(cluster: Cluster, job: Job, patience: float, now: float) -> str:
    """Return `pending for 14m (gang_reserve_after: 10m)` for an overdue gang, otherwise ''."""
    since = overdue_since(cluster, job, patience, now)
    return format_overdue(now - since, patience) if since is not None else ""


def format_overdue(waited: float, patience: float) -> str:
    """Return the text for a gang that has been pending for `waited` seconds."""
    return f"pending for {_format_coarse_duration(waited)} (gang_reserve_after: {format_duration(patience)})"


def _format_coarse_duration(seconds: float) -> str:
    """Return a duration such as `13s` or `42m`. From one minute on, seconds are not shown."""
    return format_duration(seconds - seconds % _MINUTE if seconds >= _MINUTE else float(max(0, int(seconds))))


def describe_hold(job: Job) -> str:
    """Return ``held until `iris release train` ``, or '' if the job is not held or has ended."""
    return f"held until `iris release {job.id}`" if job.held_at is not None and job.end is None else ""


def describe_quiet_attempt(attempt: Attempt, now: float) -> str:
    """Return `quiet 42m in load (data.py:3)`, `quiet 42m` without a known function, or '' if not marked quiet."""
    if attempt.quiet_since is None:
        return ""
    words = f"quiet {_format_coarse_duration(now - attempt.quiet_since)}"
    return f"{words} in {attempt.quiet_in}" if attempt.quiet_in else words


def describe_quiet_tasks(job: Job, tasks: Iterable[Task], now: float) -> str:
    """Return a text with the time for which running tasks have been quiet, and their functions; '' if no task is quiet.

    - One running task: `quiet 42m in load (data.py:3)`.
    - Several tasks, no known functions: `3 of 4 ranks quiet 42m: rank 2, then 0-1`. The first task has been quiet
      longest.
    - Several tasks, known functions: `all 4 ranks quiet 42m: rank 2 in load (data.py:3), ranks 0-1,3 in psum
      (train.py:9)`. The smallest group comes first.

    With several tasks, 42m is the longest time.
    """
    running = {
        task.index: task.attempts[-1]
        for task in tasks
        if task.attempts and task.attempts[-1].state is AttemptState.RUNNING
    }
    quiet = sorted(
        (each.quiet_since, index) for index, each in running.items() if each.quiet_since is not None
    )
    if not quiet:
        return ""
    since, index = quiet[0]
    if len(running) == 1:
        return describe_quiet_attempt(running[index], now)
    indexes_by_function: dict[str, list[int]] = {}
    for _, index in quiet:
        indexes_by_function.setdefault(running[index].quiet_in, []).append(index)
    noun = "rank" if job.is_gang else "task"
    share = "all" if len(quiet) == len(running) else f"{len(quiet)} of"
    tasks_by_function = _tasks_by_function(indexes_by_function, noun)
    return f"{share} {count(len(running), noun)} quiet {_format_coarse_duration(now - since)}: {tasks_by_function}"


def _tasks_by_function(indexes_by_function: dict[str, list[int]], noun: str) -> str:
    """Return the indexes of quiet tasks by function, the smallest group first.

    Without known functions, the task that has been quiet longest comes first, then the others.
    """
    if list(indexes_by_function) == [""]:
        first, *others = indexes_by_function[""]
        return f"{noun} {first}" + (f", then {format_indexes(sorted(others))}" if others else "")
    groups = sorted(indexes_by_function.items(), key=lambda group: len(group[1]))
    return ", ".join(
        f"{noun}{'s' if len(tasks) > 1 else ''} {format_indexes(sorted(tasks))} in {function or 'an unknown place'}"
        for function, tasks in groups
    )
