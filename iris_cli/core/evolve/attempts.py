"""What events do to tasks and their attempts, and to what these hold of their workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import replace
from iris_cli.core.endpoints import Announced, Endpoint
from iris_cli.core.events import Event
from iris_cli.core.evolve.illegal import IllegalTransitionError, illegal
from iris_cli.core.evolve.records import Records, is_open
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, End, EndReason
from iris_cli.core.outputs import NO_OUTPUTS
from iris_cli.core.task import Attempt, AttemptState, StopOrder, TaskState
from iris_cli.core.worker import Claim, Ghost


def _task_assigned(cluster: Cluster, event: ev.TaskAssigned, at: float, records: Records) -> None:
    task = records.of(cluster.tasks, event.task)
    if (
        task.state is not TaskState.PENDING
        or event.attempt != len(task.attempts)
        or (task.attempts and any(attempt.live for attempt in task.attempts))
    ):
        raise illegal(event, task)
    job = cluster.jobs[task.id.job]
    if job.coscheduling is not None and job.rounds == job.settled_rounds:
        job = records.of(cluster.jobs, job.id)
        job.rounds += 1
    attempt = records.new(Attempt)
    attempt.number, attempt.worker, attempt.token = event.attempt, event.worker, event.token
    attempt.gpus, attempt.ports, attempt.chosen = event.gpus, event.ports, event.chosen
    attempt.round, attempt.assigned_at = max(0, job.rounds - 1), at
    claims = records.worker(cluster, event.worker).claims
    claims[event.attempt_id] = Claim.of(job.resources, event.gpus)
    task.state = TaskState.ASSIGNED
    task.attempts = (*task.attempts, attempt)


def _dispatch_taken_over(cluster: Cluster, event: ev.DispatchTakenOver, _at: float, records: Records) -> None:
    _live(cluster, event, records).taken_over = True


def _task_dispatched(cluster: Cluster, event: ev.TaskDispatched, _at: float, records: Records) -> None:
    _live(cluster, event, records).acknowledged = True


def _task_dispatch_failed(
    cluster: Cluster, event: ev.TaskDispatchFailed, at: float, records: Records
) -> None:
    if cluster.attempt(event.attempt_id).started_at is not None:
        raise illegal(event, cluster.tasks[event.task])
    end = End(reason=EndReason.DISPATCH_FAILED, at=at, error=event.error)
    task, worker = _end_attempt(cluster, event, records, end, at, refused=event.refused)
    if event.refused:
        worker.refusals += 1
    if not task.state.terminal:
        task.state = TaskState.PENDING
        task.refusals += event.refused and not cluster.jobs[task.job].is_gang


def _task_running(cluster: Cluster, event: ev.TaskRunning, _at: float, records: Records) -> None:
    task = records.of(cluster.tasks, event.task)
    attempt = _live(cluster, event, records)
    if attempt.started_at is not None:
        raise illegal(event, task)
    if attempt.state is not AttemptState.STOPPING:  # a stopped attempt goes on stopping, but did start
        attempt.state = AttemptState.RUNNING
    attempt.acknowledged = True
    attempt.started_at = event.started_at
    if task.state is TaskState.ASSIGNED:
        task.state = TaskState.RUNNING
    task.refusals = 0
    if cluster.workers[attempt.worker].refusals:
        records.worker(cluster, attempt.worker).refusals = 0


def _attempt_held_up(cluster: Cluster, event: ev.AttemptHeldUp, _at: float, records: Records) -> None:
    if cluster.attempt(event.attempt_id).started_at is not None:
        raise illegal(event, cluster.tasks[event.task])
    worker = records.worker(cluster, cluster.attempt(event.attempt_id).worker)
    worker.refusals += not any(cluster.attempt(other).held_up for other in worker.claims)
    _live(cluster, event, records).held_up = event.error


def _attempt_orphaned(cluster: Cluster, event: ev.AttemptOrphaned, _at: float, records: Records) -> None:
    _live(cluster, event, records).orphaned = True


def _attempt_unkillable(cluster: Cluster, event: ev.AttemptUnkillable, _at: float, records: Records) -> None:
    if cluster.attempt(event.attempt_id).stop is None:
        raise illegal(event, cluster.tasks[event.task])
    _live(cluster, event, records).unkillable = True


def _attempt_presumed_gone(
    cluster: Cluster, event: ev.AttemptPresumedGone, _at: float, records: Records
) -> None:
    attempt = _live(cluster, event, records)
    attempt.presumed = True
    host = cluster.workers[attempt.worker]
    ghost = Ghost(
        attempt=event.attempt_id, token=attempt.token, boot_id=host.boot_id, incarnation=host.incarnation
    )
    cluster.ghosts[attempt.worker] = (*cluster.ghosts.get(attempt.worker, ()), ghost)


def _attempt_proven_gone(
    cluster: Cluster, event: ev.AttemptProvenGone, _at: float, _records: Records
) -> None:
    worker = cluster.attempt(event.attempt_id).worker
    there = cluster.ghosts.pop(worker)
    left = tuple(ghost for ghost in there if ghost.attempt != event.attempt_id)
    if left == there:
        raise illegal(event, cluster.tasks[event.task])
    if left:
        cluster.ghosts[worker] = left
    if worker in cluster.workers:
        _keep_output(cluster, worker, event.attempt_id)


def _attempt_ended(cluster: Cluster, event: ev.AttemptEnded, at: float, records: Records) -> None:
    _end_attempt(cluster, event, records, event.end, at)


def _attempt_stop_requested(
    cluster: Cluster, event: ev.AttemptStopRequested, at: float, records: Records
) -> None:
    attempt = _live(cluster, event, records)
    if attempt.stop is not None:
        raise illegal(event, cluster.tasks[event.task])
    skew = cluster.workers[attempt.worker].skew
    attempt.state = AttemptState.STOPPING
    attempt.stop = StopOrder(reason=event.reason, at=at, trigger=event.trigger, skew=skew)


def _attempt_stopped(cluster: Cluster, event: ev.AttemptStopped, at: float, records: Records) -> None:
    attempt = cluster.attempt(event.attempt_id)
    stop = attempt.stop
    if stop is None:
        raise illegal(event, cluster.tasks[event.task])
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
    task, _ = _end_attempt(cluster, event, records, end, at, refused=bool(held_up))
    if held_up and not (task.state.terminal or cluster.jobs[task.job].is_gang):
        task.refusals += 1


def _attempts_reaped(cluster: Cluster, event: ev.AttemptsReaped, at: float, records: Records) -> None:
    outputs = cluster.outputs[event.worker]
    asked = (*event.attempts, *event.left)
    if not asked or sorted(asked) != sorted(outputs.first[: len(asked)]):
        raise IllegalTransitionError(f"{event}: these are not the oldest whose output is left there")
    outputs = replace(outputs.minus(len(asked)), asked_at=at)
    for attempt_id in event.left:
        outputs = outputs.plus(attempt_id)
    cluster.outputs[event.worker] = outputs
    for attempt_id in event.attempts:
        task = records.of(cluster.tasks, attempt_id.task)
        _opened(task, attempt_id.number, records).reaped_at = at


def _task_requeued(cluster: Cluster, event: ev.TaskRequeued, _at: float, records: Records) -> None:
    task = records.of(cluster.tasks, event.task)
    if task.state.terminal or any(attempt.live and attempt.stop is None for attempt in task.attempts):
        raise illegal(event, task)
    task.state = TaskState.PENDING
    if not cluster.jobs[task.job].is_gang:
        task.failures += event.reason in PROGRAM_FAILURES
        task.preemptions += event.reason in INFRASTRUCTURE


def _task_ended(cluster: Cluster, event: ev.TaskEnded, at: float, records: Records) -> None:
    task = records.of(cluster.tasks, event.task)
    if task.state.terminal or not event.state.terminal:
        raise illegal(event, task)
    task.state, task.end = event.state, event.end
    if cluster.jobs[task.job].max_running:
        records.of(cluster.jobs, task.job).last_task_ended_at = at


def _endpoint_registered(
    cluster: Cluster, event: ev.EndpointRegistered, _at: float, _records: Records
) -> None:
    if not cluster.attempt(event.attempt_id).live:
        raise illegal(event, cluster.tasks[event.task])
    announced = cluster.endpoints.get(event.attempt_id, Announced())
    endpoint = Endpoint(name=event.name, port=event.port, metadata=event.metadata)
    cluster.endpoints[event.attempt_id] = announced.plus(endpoint, event.request)


def _endpoint_removed(cluster: Cluster, event: ev.EndpointRemoved, _at: float, _records: Records) -> None:
    announced = cluster.endpoints[event.attempt_id]
    if event.name not in announced.names:
        raise illegal(event, cluster.tasks[event.task])
    cluster.endpoints[event.attempt_id] = announced.minus(event.name, event.request)


def _live(cluster: Cluster, event: ev.AttemptEvent, records: Records) -> Any:
    """The attempt that the event is about, which must not have ended, to assign to."""
    task = records.of(cluster.tasks, event.task)
    number = event.attempt
    if not 0 <= number < len(task.attempts) or task.attempts[number].state is AttemptState.ENDED:
        raise illegal(event, task)
    return _opened(task, number, records)


def _opened(task: Any, number: int, records: Records) -> Any:
    """An attempt of a task that is open, to assign to."""
    attempt = task.attempts[number]
    if is_open(attempt):
        return attempt
    copied = records.copy(attempt)
    task.attempts = (*task.attempts[:number], copied, *task.attempts[number + 1 :])
    return copied


def _end_attempt(
    cluster: Cluster,
    event: ev.AttemptEvent,
    records: Records,
    end: End,
    at: float,
    *,
    refused: bool = False,
) -> tuple[Any, Any]:
    """The task and the worker of the attempt, to assign to."""
    attempt = _live(cluster, event, records)
    worker = records.worker(cluster, attempt.worker)
    attempt.state, attempt.end, attempt.ended_at = AttemptState.ENDED, end, at
    attempt.refused = refused
    over = event.attempt_id
    worker.claims.pop(over, None)
    cluster.endpoints.pop(over, None)
    if not worker.claims:
        worker.freed_at = at
    if not attempt.presumed:  # else it may still run
        _keep_output(cluster, attempt.worker, over)
    return cluster.tasks[event.task], worker


def _keep_output(cluster: Cluster, worker: WorkerId, attempt: AttemptId) -> None:
    cluster.outputs[worker] = cluster.outputs.get(worker, NO_OUTPUTS).plus(attempt)


APPLY: dict[type[Event], Callable[[Cluster, Any, float, Records], None]] = {
    ev.TaskAssigned: _task_assigned,
    ev.DispatchTakenOver: _dispatch_taken_over,
    ev.TaskDispatched: _task_dispatched,
    ev.TaskDispatchFailed: _task_dispatch_failed,
    ev.TaskRunning: _task_running,
    ev.AttemptHeldUp: _attempt_held_up,
    ev.AttemptOrphaned: _attempt_orphaned,
    ev.AttemptUnkillable: _attempt_unkillable,
    ev.AttemptPresumedGone: _attempt_presumed_gone,
    ev.AttemptProvenGone: _attempt_proven_gone,
    ev.AttemptEnded: _attempt_ended,
    ev.AttemptStopRequested: _attempt_stop_requested,
    ev.AttemptStopped: _attempt_stopped,
    ev.EndpointRegistered: _endpoint_registered,
    ev.EndpointRemoved: _endpoint_removed,
    ev.AttemptsReaped: _attempts_reaped,
    ev.TaskRequeued: _task_requeued,
    ev.TaskEnded: _task_ended,
}
