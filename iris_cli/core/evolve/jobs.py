"""What events do to jobs and their rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Event
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.evolve.records import Records
from iris_cli.core.ids import JobId, parent_of
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, EndReason
from iris_cli.core.task import Task


def _job_submitted(cluster: Cluster, event: ev.JobSubmitted, at: float, records: Records) -> None:
    job = event.job
    if job.id in cluster.jobs:
        raise IllegalTransitionError(f"job {job.id} exists already")
    cluster.jobs[job.id] = submitted = records.copy(job)
    submitted.submitted_at, submitted.order = at, len(cluster.jobs) - 1
    submitted.origin = event.origin
    for task_id in job.task_ids:
        cluster.tasks[task_id] = task = records.new(Task)
        task.id = task_id
    parent = parent_of(job.id)
    if parent is not None:
        cluster.children[parent] = (*cluster.children.get(parent, ()), job.id)


def _job_adopted(cluster: Cluster, event: ev.JobAdopted, _at: float, records: Records) -> None:
    job = records.of(cluster.jobs, event.job)
    if job.origin is None or job.origin.attempt.task != event.origin.attempt.task:
        raise IllegalTransitionError(f"{event}: {job.id} was not submitted by that task")
    job.adopted = event.origin


def _job_cancelled(cluster: Cluster, event: ev.JobCancelled, _at: float, records: Records) -> None:
    _open_job(cluster, event, event.job, records).cancelled = True


def _job_ended(cluster: Cluster, event: ev.JobEnded, _at: float, records: Records) -> None:
    _open_job(cluster, event, event.job, records).end = event.end


def _gang_round_ended(cluster: Cluster, event: ev.GangRoundEnded, _at: float, records: Records) -> None:
    job = _open_job(cluster, event, event.job, records)
    if not job.settled_rounds == event.round < job.rounds:
        raise IllegalTransitionError(
            f"{event}: of {job.rounds} rounds of {job.id}, {job.settled_rounds} are settled"
        )
    job.settled_rounds = event.round + 1
    job.failed_rounds += event.reason in PROGRAM_FAILURES
    job.preempted_rounds += event.reason in INFRASTRUCTURE
    if event.reason is EndReason.DISPATCH_FAILED:
        job.refused_rounds += event.refused
    else:
        job.refused_rounds = 0


def _open_job(cluster: Cluster, event: Event, job_id: JobId, records: Records) -> Any:
    """A job that has not ended, to assign to."""
    job = records.of(cluster.jobs, job_id)
    if job.end is not None:
        raise IllegalTransitionError(f"{event}: the job has ended already ({job.end.reason})")
    return job


APPLY: dict[type[Event], Callable[[Cluster, Any, float, Records], None]] = {
    ev.JobSubmitted: _job_submitted,
    ev.JobAdopted: _job_adopted,
    ev.JobCancelled: _job_cancelled,
    ev.JobEnded: _job_ended,
    ev.GangRoundEnded: _gang_round_ended,
}
