"""How long a gang has waited for its place."""

from __future__ import annotations

from iris_cli.core.cluster import Cluster
from iris_cli.core.job import Job
from iris_cli.core.task import TaskState
from iris_cli.core.units import format_duration

_COARSE = 60.0  # seconds from which on only minutes are told


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
    tasks = cluster.tasks_of(job.id)
    if not job.is_gang or any(task.state is not TaskState.PENDING for task in tasks):
        return None
    awaited = [cluster.jobs[each].end for each in job.after if each in cluster.jobs]
    if any(end is None for end in awaited):
        return None
    ends = [attempt.ended_at or 0.0 for task in tasks for attempt in task.attempts]
    return max(job.submitted_at, *ends, *(end.at for end in awaited if end is not None), 0.0)
