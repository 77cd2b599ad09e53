"""What events do to tasks and their attempts, and to what these hold of their workers."""

from __future__ import annotations

from iris_cli.core import events as ev
from iris_cli.core.endpoints import Announced, Endpoint
from iris_cli.core.evolve.edit import Edit, on
from iris_cli.core.evolve.illegal import IllegalTransitionError, illegal
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, End, EndReason
from iris_cli.core.outputs import NO_OUTPUTS, Outputs
from iris_cli.core.task import Attempt, AttemptState, StopOrder, Task, TaskState
from iris_cli.core.worker import Claim, Ghost, Worker


def _task_assigned(edit: Edit, event: ev.TaskAssigned, at: float) -> None:
    task = edit.task(event.task)
    if (
        task.state is not TaskState.PENDING
        or event.attempt != len(task.attempts)
        or (task.attempts and any(attempt.live for attempt in task.attempts))
    ):
        raise illegal(event, task)
    job = edit.cluster.jobs[task.id.job]
    if job.coscheduling is not None and job.rounds == job.settled_rounds:
        job = edit.job(job.id)
        job.rounds += 1
    claims = edit.worker(event.worker).claims
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
    edit.add_attempt(task, attempt)


def _dispatch_taken_over(edit: Edit, event: ev.DispatchTakenOver, _at: float) -> None:
    _, attempt = _live(edit, event)
    attempt.taken_over = True


def _task_dispatched(edit: Edit, event: ev.TaskDispatched, _at: float) -> None:
    _, attempt = _live(edit, event)
    attempt.acknowledged = True


def _task_dispatch_failed(edit: Edit, event: ev.TaskDispatchFailed, at: float) -> None:
    if edit.cluster.attempt(event.attempt_id).started_at is not None:
        raise illegal(event, edit.cluster.tasks[event.task])
    end = End(reason=EndReason.DISPATCH_FAILED, at=at, error=event.error)
    task, worker = _end_attempt(edit, event, end, at, refused=event.refused)
    if event.refused:
        worker.refusals += 1
    if not task.state.terminal:
        task.state = TaskState.PENDING
        task.refusals += event.refused and not edit.cluster.jobs[task.job].is_gang


def _task_running(edit: Edit, event: ev.TaskRunning, _at: float) -> None:
    task, attempt = _live(edit, event)
    if attempt.started_at is not None:
        raise illegal(event, task)
    if attempt.state is not AttemptState.STOPPING:  # a stopped attempt goes on stopping, but did start
        attempt.state = AttemptState.RUNNING
    attempt.acknowledged = True
    attempt.started_at = event.started_at
    if task.state is TaskState.ASSIGNED:
        task.state = TaskState.RUNNING
    task.refusals = 0
    if edit.cluster.workers[attempt.worker].refusals:
        edit.worker(attempt.worker).refusals = 0


def _attempt_held_up(edit: Edit, event: ev.AttemptHeldUp, _at: float) -> None:
    if edit.cluster.attempt(event.attempt_id).started_at is not None:
        raise illegal(event, edit.cluster.tasks[event.task])
    worker = edit.worker(edit.cluster.attempt(event.attempt_id).worker)
    worker.refusals += not any(edit.cluster.attempt(other).held_up for other in worker.claims)
    _, attempt = _live(edit, event)
    attempt.held_up = event.error


def _attempt_orphaned(edit: Edit, event: ev.AttemptOrphaned, _at: float) -> None:
    _, attempt = _live(edit, event)
    attempt.orphaned = True


def _attempt_unkillable(edit: Edit, event: ev.AttemptUnkillable, _at: float) -> None:
    if edit.cluster.attempt(event.attempt_id).stop is None:
        raise illegal(event, edit.cluster.tasks[event.task])
    _, attempt = _live(edit, event)
    attempt.unkillable = True


def _attempt_presumed_gone(edit: Edit, event: ev.AttemptPresumedGone, _at: float) -> None:
    _, attempt = _live(edit, event)
    attempt.presumed = True
    host = edit.cluster.workers[attempt.worker]
    ghost = Ghost(
        attempt=event.attempt_id, token=attempt.token, boot_id=host.boot_id, incarnation=host.incarnation
    )
    edit.cluster.ghosts[attempt.worker] = (*edit.cluster.ghosts.get(attempt.worker, ()), ghost)


def _attempt_proven_gone(edit: Edit, event: ev.AttemptProvenGone, _at: float) -> None:
    worker = edit.cluster.attempt(event.attempt_id).worker
    there = edit.cluster.ghosts.pop(worker)
    left = tuple(ghost for ghost in there if ghost.attempt != event.attempt_id)
    if left == there:
        raise illegal(event, edit.cluster.tasks[event.task])
    if left:
        edit.cluster.ghosts[worker] = left
    if worker in edit.cluster.workers:
        _keep_output(edit, worker, event.attempt_id)


def _attempt_ended(edit: Edit, event: ev.AttemptEnded, at: float) -> None:
    _end_attempt(edit, event, event.end, at)


def _attempt_stop_requested(edit: Edit, event: ev.AttemptStopRequested, at: float) -> None:
    task, attempt = _live(edit, event)
    if attempt.stop is not None:
        raise illegal(event, task)
    skew = edit.cluster.workers[attempt.worker].skew
    attempt.state = AttemptState.STOPPING
    attempt.stop = StopOrder(reason=event.reason, at=at, trigger=event.trigger, skew=skew)


def _attempt_stopped(edit: Edit, event: ev.AttemptStopped, at: float) -> None:
    attempt = edit.cluster.attempt(event.attempt_id)
    stop = attempt.stop
    if stop is None:
        raise illegal(event, edit.cluster.tasks[event.task])
    held_up = attempt.held_up if attempt.started_at is None else ""
    end = End(
        reason=stop.reason,
        at=at,
        exit_code=event.exit_code,
        trigger=stop.trigger,
        error=held_up,
        log_tail=event.log_tail,
        ran=event.ran,
    )
    task, _ = _end_attempt(edit, event, end, at, refused=bool(held_up))
    if held_up and not (task.state.terminal or edit.cluster.jobs[task.job].is_gang):
        task.refusals += 1


def _attempts_reaped(edit: Edit, event: ev.AttemptsReaped, at: float) -> None:
    outputs = edit.cluster.outputs[event.worker]
    asked = (*event.attempts, *event.left)
    if not asked or sorted(asked) != sorted(outputs.first[: len(asked)]):
        raise IllegalTransitionError(f"{event}: these are not the oldest whose output is left there")
    left = outputs.minus(len(asked))
    outputs = Outputs(full=left.full, last=left.last, asked_at=at)
    for attempt_id in event.left:
        outputs = outputs.plus(attempt_id)
    edit.cluster.outputs[event.worker] = outputs
    for attempt_id in event.attempts:
        attempt = edit.attempt(edit.task(attempt_id.task), attempt_id.number)
        attempt.reaped_at = at


def _task_requeued(edit: Edit, event: ev.TaskRequeued, _at: float) -> None:
    task = edit.task(event.task)
    if task.state.terminal or any(attempt.live and attempt.stop is None for attempt in task.attempts):
        raise illegal(event, task)
    task.state = TaskState.PENDING
    if not edit.cluster.jobs[task.job].is_gang:
        task.failures += event.reason in PROGRAM_FAILURES
        task.preemptions += event.reason in INFRASTRUCTURE


def _task_ended(edit: Edit, event: ev.TaskEnded, at: float) -> None:
    task = edit.task(event.task)
    if task.state.terminal or not event.state.terminal:
        raise illegal(event, task)
    task.state, task.end = event.state, event.end
    if edit.cluster.jobs[task.job].max_running:
        edit.job(task.job).last_task_ended_at = at


def _endpoint_registered(edit: Edit, event: ev.EndpointRegistered, _at: float) -> None:
    if not edit.cluster.attempt(event.attempt_id).live:
        raise illegal(event, edit.cluster.tasks[event.task])
    announced = edit.cluster.endpoints.get(event.attempt_id, Announced())
    endpoint = Endpoint(name=event.name, port=event.port, metadata=event.metadata)
    edit.cluster.endpoints[event.attempt_id] = announced.plus(endpoint, event.request)


def _endpoint_removed(edit: Edit, event: ev.EndpointRemoved, _at: float) -> None:
    announced = edit.cluster.endpoints[event.attempt_id]
    if event.name not in announced.names:
        raise illegal(event, edit.cluster.tasks[event.task])
    edit.cluster.endpoints[event.attempt_id] = announced.minus(event.name, event.request)


def _live(edit: Edit, event: ev.AttemptEvent) -> tuple[Task, Attempt]:
    """The attempt that the event is about, which must not have ended, and its task, to assign to."""
    task = edit.task(event.task)
    number = event.attempt
    if not 0 <= number < len(task.attempts) or task.attempts[number].state is AttemptState.ENDED:
        raise illegal(event, task)
    return task, edit.attempt(task, number)


def _end_attempt(
    edit: Edit,
    event: ev.AttemptEvent,
    end: End,
    at: float,
    *,
    refused: bool = False,
) -> tuple[Task, Worker]:
    """The task and the worker of the attempt, to assign to."""
    task, attempt = _live(edit, event)
    worker = edit.worker(attempt.worker)
    attempt.state, attempt.end, attempt.ended_at = AttemptState.ENDED, end, at
    attempt.refused = refused
    over = event.attempt_id
    worker.claims.pop(over, None)
    edit.cluster.endpoints.pop(over, None)
    if not worker.claims:
        worker.freed_at = at
    if not attempt.presumed:  # else it may still run
        _keep_output(edit, attempt.worker, over)
    return task, worker


def _keep_output(edit: Edit, worker: WorkerId, attempt: AttemptId) -> None:
    edit.cluster.outputs[worker] = edit.cluster.outputs.get(worker, NO_OUTPUTS).plus(attempt)


CHANGES = (
    on(ev.TaskAssigned, _task_assigned),
    on(ev.DispatchTakenOver, _dispatch_taken_over),
    on(ev.TaskDispatched, _task_dispatched),
    on(ev.TaskDispatchFailed, _task_dispatch_failed),
    on(ev.TaskRunning, _task_running),
    on(ev.AttemptHeldUp, _attempt_held_up),
    on(ev.AttemptOrphaned, _attempt_orphaned),
    on(ev.AttemptUnkillable, _attempt_unkillable),
    on(ev.AttemptPresumedGone, _attempt_presumed_gone),
    on(ev.AttemptProvenGone, _attempt_proven_gone),
    on(ev.AttemptEnded, _attempt_ended),
    on(ev.AttemptStopRequested, _attempt_stop_requested),
    on(ev.AttemptStopped, _attempt_stopped),
    on(ev.EndpointRegistered, _endpoint_registered),
    on(ev.EndpointRemoved, _endpoint_removed),
    on(ev.AttemptsReaped, _attempts_reaped),
    on(ev.TaskRequeued, _task_requeued),
    on(ev.TaskEnded, _task_ended),
)
