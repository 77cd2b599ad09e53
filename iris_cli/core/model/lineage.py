"""What a child job took over from whom. It is in the log once: jobs never change what they asked for."""

from __future__ import annotations

from iris_cli.core.constraints.types import Constraint
from iris_cli.core.ids import JobId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job


def where_from(cluster: Cluster, job: Job) -> tuple[JobId, ...]:
    """For each constraint of a job, the job that named it: itself, or the ancestor it was taken over from."""
    return tuple(_source(cluster, job, constraint) for constraint in job.constraints)


def _source(cluster: Cluster, job: Job, constraint: Constraint) -> JobId:
    """Up from child to parent while the parent has it: what a child doesn't share, or repeats, it has named."""
    while job.origin is not None and constraint not in job.origin.repeats:
        parent = cluster.jobs[job.origin.attempt.task.job]
        if constraint not in parent.constraints:
            break
        job = parent
    return job.id
