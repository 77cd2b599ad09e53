"""Effects of events on jobs, tasks and attempts, and on the resources that attempts hold on workers."""

from copy import copy

from iris_cli.core import AttemptId, Job, JobId, TaskId, WorkerId, parent_of
from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event
from iris_cli.core.evolve.edit import Edit, IllegalTransitionError, change_row, illegal_transition_error
from iris_cli.core.evolve.transitions import EventContext, next_phase
from iris_cli.core.model.cluster import NO_OUTPUTS, Announced, Endpoint
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, Attempt, EndReason, Task, TaskState
from iris_cli.core.model.worker import Claim, Ghost


def _job_submitted(edit: Edit, event: ev.JobSubmitted, at: float) -> None:
    job = event.job
    if job.id in edit.cluster.jobs:
        raise IllegalTransitionError(f"job {job.id} exists already")
    submitted = copy(job)  # the record in the event must not change
    submitted.submitted_at, submitted.order = at, len(edit.cluster.jobs)
    submitted.origin = event.origin
    edit.jobs[submitted.id] = submitted
    edit.tasks.add({task: Task(id=task) for task in job.task_ids})
    if job.again is not None:
        earlier = edit.jobs[job.again]
        if earlier.end is None:
            raise IllegalTransitionError(f"{job.id} resubmits {earlier.id}, which has not ended")
        earlier.tried_again = (*earlier.tried_again, job.id)
    parent = parent_of(job.id)
    if parent is not None:
        edit.cluster.children[parent] = (*edit.cluster.children.get(parent, ()), job.id)


def _job_adopted(edit: Edit, event: ev.JobAdopted, _at: float) -> None:
    job = edit.jobs[event.job]
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
    """Return an open job, to change it. Raises IllegalTransitionError if the job has ended."""
    job = edit.jobs[job_id]
    if job.end is not None:
        raise IllegalTransitionError(f"{event}: the job has ended already ({job.end.reason})")
    return job


def _task_assigned(edit: Edit, event: ev.TaskAssigned, at: float) -> None:
    task = edit.tasks[event.task]
    is_free = task.state is TaskState.PENDING and not any(attempt.live for attempt in task.attempts)
    if not is_free or event.attempt != len(task.attempts):
        raise illegal_transition_error(event, task)
    job = edit.cluster.jobs[task.id.job]
    if job.coscheduling is not None and job.rounds == job.settled_rounds:
        job = edit.jobs[job.id]
        job.rounds += 1
    claims = edit.workers[event.worker].claims
    claims[event.attempt_id] = Claim.of(job.resources, event.gpus)
    task.state = TaskState.ASSIGNED
    attempt = Attempt(
        number=event.attempt,
        worker=event.worker,
        token=event.token,
        gpus=event.gpus,
        ports=event.ports,
        chosen=event.chosen,
        round=max(0, job.rounds - 1),
        assigned_at=at,
    )
    task.attempts = (*task.attempts, attempt)


def _task_dispatch_failed(edit: Edit, event: ev.TaskDispatchFailed, at: float) -> None:
    task, attempt = _end_attempt(edit, event, at)
    if event.refused:
        edit.workers[attempt.worker].refusals += 1
    if not task.state.terminal:
        task.state = TaskState.PENDING
        task.refusals += event.refused and not edit.cluster.jobs[task.job].is_gang


def _task_running(edit: Edit, event: ev.TaskRunning, at: float) -> None:
    task, attempt = _advance_attempt(edit, event, at)
    if task.state is TaskState.ASSIGNED:
        task.state = TaskState.RUNNING
    task.refusals = 0
    if edit.cluster.workers[attempt.worker].refusals:
        edit.workers[attempt.worker].refusals = 0


def _attempt_held_up(edit: Edit, event: ev.AttemptHeldUp, at: float) -> None:
    worker = edit.workers[edit.cluster.attempt(event.attempt_id).worker]
    worker.refusals += not any(edit.cluster.attempt(other).held_up for other in worker.claims)
    _advance_attempt(edit, event, at)


def _attempt_presumed_gone(edit: Edit, event: ev.AttemptPresumedGone, at: float) -> None:
    _, attempt = _advance_attempt(edit, event, at)
    host = edit.cluster.workers[attempt.worker]
    ghost = Ghost(
        attempt=event.attempt_id, token=attempt.token, boot_id=host.boot_id, incarnation=host.incarnation
    )
    edit.cluster.ghosts[attempt.worker] = (*edit.cluster.ghosts.get(attempt.worker, ()), ghost)


def _attempt_proven_gone(edit: Edit, event: ev.AttemptProvenGone, at: float) -> None:
    _, attempt = _advance_attempt(edit, event, at)
    worker = attempt.worker
    ghosts = edit.cluster.ghosts.pop(worker)
    remaining = tuple(ghost for ghost in ghosts if ghost.attempt != event.attempt_id)
    if remaining == ghosts:
        raise illegal_transition_error(event, edit.cluster.tasks[event.task])
    if remaining:
        edit.cluster.ghosts[worker] = remaining
    if worker in edit.cluster.workers:
        _record_output(edit, worker, event.attempt_id)


def _attempt_stopped(edit: Edit, event: ev.AttemptStopped, at: float) -> None:
    task, attempt = _end_attempt(edit, event, at)
    if attempt.held_up and not (task.state.terminal or edit.cluster.jobs[task.job].is_gang):
        task.refusals += 1


def _attempts_reaped(edit: Edit, event: ev.AttemptsReaped, at: float) -> None:
    outputs = edit.cluster.outputs[event.worker]
    requested = (*event.attempts, *event.left)
    oldest = set(outputs.oldest_batch[: len(requested)])
    if not len(requested) == len(oldest) > 0 or oldest != set(requested):
        raise IllegalTransitionError(f"{event}: these are not the oldest attempts with files on the worker")
    outputs = outputs.minus(len(requested), at)
    for attempt_id in event.left:
        outputs = outputs.plus(attempt_id)
    edit.cluster.outputs[event.worker] = outputs
    for attempt_id in event.attempts:
        _enter_next_phase(edit, attempt_id.task, attempt_id.number, event, at)


def _task_requeued(edit: Edit, event: ev.TaskRequeued, _at: float) -> None:
    task = edit.tasks[event.task]
    if task.state.terminal or any(attempt.live and attempt.stop is None for attempt in task.attempts):
        raise illegal_transition_error(event, task)
    task.state = TaskState.PENDING
    if not edit.cluster.jobs[task.job].is_gang:
        task.failures += event.reason in PROGRAM_FAILURES
        task.preemptions += event.reason in INFRASTRUCTURE


def _task_ended(edit: Edit, event: ev.TaskEnded, at: float) -> None:
    task = edit.tasks[event.task]
    if task.state.terminal or not event.state.terminal:
        raise illegal_transition_error(event, task)
    task.state, task.end = event.state, event.end
    if edit.cluster.jobs[task.job].max_running:
        edit.jobs[task.job].last_task_ended_at = at


def _endpoint_registered(edit: Edit, event: ev.EndpointRegistered, at: float) -> None:
    _advance_attempt(edit, event, at)
    existing = edit.cluster.endpoints.get(event.attempt_id, Announced())
    endpoint = Endpoint(name=event.name, port=event.port, metadata=event.metadata)
    edit.cluster.endpoints[event.attempt_id] = existing.plus(endpoint, event.request)


def _endpoint_removed(edit: Edit, event: ev.EndpointRemoved, at: float) -> None:
    _advance_attempt(edit, event, at)
    existing = edit.cluster.endpoints[event.attempt_id]
    if event.name not in existing.names:
        raise illegal_transition_error(event, edit.cluster.tasks[event.task])
    edit.cluster.endpoints[event.attempt_id] = existing.minus(event.name, event.request)


def _advance_attempt(edit: Edit, event: ev.AttemptEvent, at: float) -> tuple[Task, Attempt]:
    """Put the attempt of an event into its next phase. Return the task and the attempt."""
    return _enter_next_phase(edit, event.task, event.attempt, event, at)


def _enter_next_phase(
    edit: Edit, task_id: TaskId, number: int, event: ev.Event, at: float
) -> tuple[Task, Attempt]:
    task = edit.tasks[task_id]
    if not 0 <= number < len(task.attempts):
        raise illegal_transition_error(event, task)
    attempt = task.attempts[number]
    phase = next_phase(attempt.phase, event, EventContext(edit.cluster, attempt, at))
    if phase is None:
        raise illegal_transition_error(event, task)
    attempt.phase = phase
    return task, attempt


def _end_attempt(edit: Edit, event: ev.AttemptEvent, at: float) -> tuple[Task, Attempt]:
    """Apply an event that ends the attempt, and release its resources. Return the task and the attempt."""
    task, attempt = _advance_attempt(edit, event, at)
    worker = edit.workers[attempt.worker]
    ended = event.attempt_id
    worker.claims.pop(ended, None)
    edit.cluster.endpoints.pop(ended, None)
    if not worker.claims:
        worker.freed_at = at
    if not attempt.presumed:  # a presumed attempt may still run
        _record_output(edit, attempt.worker, ended)
    return task, attempt


def _record_output(edit: Edit, worker: WorkerId, attempt: AttemptId) -> None:
    edit.cluster.outputs[worker] = edit.cluster.outputs.get(worker, NO_OUTPUTS).plus(attempt)


CHANGES = (
    change_row(ev.JobSubmitted, _job_submitted),
    change_row(ev.JobAdopted, _job_adopted),
    change_row(ev.JobCancelled, _job_cancelled),
    change_row(ev.JobChanged, _job_changed),
    change_row(ev.JobEnded, _job_ended),
    change_row(ev.GangRoundEnded, _gang_round_ended),
    change_row(ev.TaskAssigned, _task_assigned),
    change_row(ev.DispatchTakenOver, _advance_attempt),
    change_row(ev.TaskDispatched, _advance_attempt),
    change_row(ev.TaskDispatchFailed, _task_dispatch_failed),
    change_row(ev.TaskRunning, _task_running),
    change_row(ev.AttemptHeldUp, _attempt_held_up),
    change_row(ev.AttemptOrphaned, _advance_attempt),
    change_row(ev.TaskQuiet, _advance_attempt),
    change_row(ev.AttemptUnkillable, _advance_attempt),
    change_row(ev.AttemptPresumedGone, _attempt_presumed_gone),
    change_row(ev.AttemptProvenGone, _attempt_proven_gone),
    change_row(ev.AttemptEnded, _end_attempt),
    change_row(ev.AttemptStopRequested, _advance_attempt),
    change_row(ev.AttemptStopped, _attempt_stopped),
    change_row(ev.EndpointRegistered, _endpoint_registered),
    change_row(ev.EndpointRemoved, _endpoint_removed),
    change_row(ev.AttemptsReaped, _attempts_reaped),
    change_row(ev.TaskRequeued, _task_requeued),
    change_row(ev.TaskEnded, _task_ended),
)
