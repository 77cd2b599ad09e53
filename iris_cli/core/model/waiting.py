"""When a job may compete for workers, and how long a gang has waited for them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from iris_cli.core.ids import JobId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import TaskState
from iris_cli.core.units import format_duration

_COARSE = 60.0  # seconds from which on only minutes are told


def competes_since(job: Job, get_job: Callable[[JobId], Job | None]) -> float:
    """The time since which the job may compete: its submission, or the last end of the jobs that it comes `after`.

    `inf` while one of them has not ended. Jobs that `get_job` does not know are ignored.
    """
    since = job.submitted_at
    for dependency in map(get_job, job.after):
        if dependency is not None:
            since = max(since, dependency.end.at if dependency.end is not None else inf)
    return since


def overdue_since(cluster: Cluster, job: Job, patience: float, now: float) -> float | None:
    """Since when a gang has waited, if that is at least `patience` seconds; 0: there is no such limit."""
    since = _waits_since(cluster, job) if patience > 0 and job.end is None else None
    return since if since is not None and now - since >= patience else None


def overdue(cluster: Cluster, job: Job, patience: float, now: float) -> str:
    """`has waited 14m, longer than 10m` of a gang that is overdue, else ''."""
    since = overdue_since(cluster, job, patience, now)
    return overdue_words(now - since, patience) if since is not None else ""


def overdue_words(waited: float, patience: float) -> str:
    """The same of one that has waited so many seconds."""
    shown = waited - waited % _COARSE if waited >= _COARSE else float(int(waited))
    return f"has waited {format_duration(shown)}, longer than {format_duration(patience)}"


def _waits_since(cluster: Cluster, job: Job) -> float | None:
    """Since when a gang could have been placed, had there been room; None if it is placed, or is no gang."""
    tasks = cluster.tasks_of(job.id) if job.is_gang else ()
    if not tasks or any(task.state is not TaskState.PENDING for task in tasks):
        return None
    since = competes_since(job, cluster.jobs.get)
    if since == inf:
        return None
    return max(since, *(attempt.ended_at or 0.0 for task in tasks for attempt in task.attempts), 0.0)
