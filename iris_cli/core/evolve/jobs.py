"""What events do to jobs and their rounds."""

from __future__ import annotations

from copy import copy

from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event
from iris_cli.core.evolve.edit import Edit, on
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.ids import JobId, parent_of
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, EndReason, Task


def _job_submitted(edit: Edit, event: ev.JobSubmitted, at: float) -> None:
    job = event.job
    if job.id in edit.cluster.jobs:
        raise IllegalTransitionError(f"job {job.id} exists already")
    submitted = copy(job)  # the event's own stays as it was submitted
    submitted.submitted_at, submitted.order = at, len(edit.cluster.jobs)
    submitted.origin = event.origin
    edit.add_job(submitted)
    for task_id in job.task_ids:
        edit.add_task(Task(id=task_id))
    if job.again is not None:
        tried = edit.job(job.again)
        if tried.end is None:
            raise IllegalTransitionError(f"{job.id} is {tried.id} again, which has not ended")
        tried.tried_again = (*tried.tried_again, job.id)
    parent = parent_of(job.id)
    if parent is not None:
        edit.cluster.children[parent] = (*edit.cluster.children.get(parent, ()), job.id)


def _job_adopted(edit: Edit, event: ev.JobAdopted, _at: float) -> None:
    job = edit.job(event.job)
    if job.origin is None or job.origin.attempt.task != event.origin.attempt.task:
        raise IllegalTransitionError(f"{event}: {job.id} was not submitted by that task")
    job.adopted = event.origin


def _job_cancelled(edit: Edit, event: ev.JobCancelled, _at: float) -> None:
    _open_job(edit, event, event.job).cancelled = True


def _job_changed(edit: Edit, event: ev.JobChanged, at: float) -> None:
    job = _open_job(edit, event, event.job)
    if event.held:
        job.held_at = at
    elif event.held is False:
        job.held_at, job.released_at = None, at
    if event.priority is not None:
        job.priority = event.priority
    if event.scheduling_timeout is not None:
        job.scheduling_timeout = event.scheduling_timeout


def _job_ended(edit: Edit, event: ev.JobEnded, _at: float) -> None:
    _open_job(edit, event, event.job).end = event.end


def _gang_round_ended(edit: Edit, event: ev.GangRoundEnded, _at: float) -> None:
    job = _open_job(edit, event, event.job)
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


def _open_job(edit: Edit, event: Event, job_id: JobId) -> Job:
    """A job that has not ended, to assign to."""
    job = edit.job(job_id)
    if job.end is not None:
        raise IllegalTransitionError(f"{event}: the job has ended already ({job.end.reason})")
    return job


CHANGES = (
    on(ev.JobSubmitted, _job_submitted),
    on(ev.JobAdopted, _job_adopted),
    on(ev.JobCancelled, _job_cancelled),
    on(ev.JobChanged, _job_changed),
    on(ev.JobEnded, _job_ended),
    on(ev.GangRoundEnded, _gang_round_ended),
)
