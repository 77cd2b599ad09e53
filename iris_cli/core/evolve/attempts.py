"""What events do to tasks and their attempts, and to what these hold of their workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Event
from iris_cli.core.evolve.illegal import IllegalTransitionError, illegal
from iris_cli.core.evolve.records import Records
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, End, EndReason
from iris_cli.core.outputs import Outputs
from iris_cli.core.task import Attempt, AttemptState, StopOrder, Task, TaskState
from iris_cli.core.worker import Claim, Ghost


def _task_assigned(cluster: Cluster, event: ev.TaskAssigned, at: float, records: Records) -> None:
    task = cluster.tasks[event.task]
    lives = any(attempt.live for attempt in task.attempts)
    if task.state is not TaskState.PENDING or lives or event.attempt != len(task.attempts):
        raise illegal(event, task)
    job = cluster.jobs[task.job]
    if job.is_gang and job.rounds == job.settled_rounds:
        job = cluster.jobs[task.job] = records.change(job, rounds=job.rounds + 1)
    attempt = records.made(
        Attempt(
            number=event.attempt,
            worker=event.worker,
            token=event.token,
            round=max(0, job.rounds - 1),
            gpus=event.gpus,
            chosen=event.chosen,
            assigned_at=at,
        )
    )
    worker = cluster.workers[event.worker]
    claims = {**worker.claims, event.attempt_id: Claim.of(job.resources, event.gpus)}
    cluster.workers[worker.id] = records.change(worker, claims=claims)
    cluster.tasks[task.id] = records.change(
        task, state=TaskState.ASSIGNED, attempts=(*task.attempts, attempt)
    )


def _dispatch_taken_over(cluster: Cluster, event: ev.DispatchTakenOver, _at: float, records: Records) -> None:
    _change_attempt(cluster, event, records, taken_over=True)


def _task_dispatched(cluster: Cluster, event: ev.TaskDispatched, _at: float, records: Records) -> None:
    _change_attempt(cluster, event, records, acknowledged=True)


def _task_dispatch_failed(
    cluster: Cluster, event: ev.TaskDispatchFailed, at: float, records: Records
) -> None:
    if cluster.attempt(event.attempt_id).started_at is not None:
        raise illegal(event, cluster.tasks[event.task])
    end = End(reason=EndReason.DISPATCH_FAILED, at=at, error=event.error)
    task = _end_attempt(cluster, event, records, end, at, refused=event.refused)
    worker = cluster.workers[task.attempts[event.attempt].worker]
    if event.refused:
        cluster.workers[worker.id] = records.change(worker, refusals=worker.refusals + 1)
    if not task.state.terminal:
        charged = event.refused and not cluster.jobs[task.job].is_gang
        cluster.tasks[task.id] = records.change(
            task, state=TaskState.PENDING, refusals=task.refusals + charged
        )


def _task_running(cluster: Cluster, event: ev.TaskRunning, _at: float, records: Records) -> None:
    attempt = cluster.attempt(event.attempt_id)
    if attempt.started_at is not None:
        raise illegal(event, cluster.tasks[event.task])
    stays = attempt.state is AttemptState.STOPPING  # a stopped attempt goes on stopping, but did start
    state = attempt.state if stays else AttemptState.RUNNING
    task = _change_attempt(
        cluster, event, records, state=state, acknowledged=True, started_at=event.started_at
    )
    running = TaskState.RUNNING if task.state is TaskState.ASSIGNED else task.state
    cluster.tasks[task.id] = records.change(task, state=running, refusals=0)
    worker = cluster.workers[attempt.worker]
    if worker.refusals:
        cluster.workers[worker.id] = records.change(worker, refusals=0)


def _attempt_held_up(cluster: Cluster, event: ev.AttemptHeldUp, _at: float, records: Records) -> None:
    if cluster.attempt(event.attempt_id).started_at is not None:
        raise illegal(event, cluster.tasks[event.task])
    worker = cluster.workers[cluster.attempt(event.attempt_id).worker]
    first = not any(cluster.attempt(other).held_up for other in worker.claims)
    _change_attempt(cluster, event, records, held_up=event.error)
    cluster.workers[worker.id] = records.change(worker, refusals=worker.refusals + first)


def _attempt_orphaned(cluster: Cluster, event: ev.AttemptOrphaned, _at: float, records: Records) -> None:
    _change_attempt(cluster, event, records, orphaned=True)


def _attempt_unkillable(cluster: Cluster, event: ev.AttemptUnkillable, _at: float, records: Records) -> None:
    if cluster.attempt(event.attempt_id).stop is None:
        raise illegal(event, cluster.tasks[event.task])
    _change_attempt(cluster, event, records, unkillable=True)


def _attempt_presumed_gone(
    cluster: Cluster, event: ev.AttemptPresumedGone, _at: float, records: Records
) -> None:
    task = _change_attempt(cluster, event, records, presumed=True)
    attempt = task.attempts[event.attempt]
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
    attempt = cluster.attempt(event.attempt_id)
    if attempt.stop is not None:
        raise illegal(event, cluster.tasks[event.task])
    skew = cluster.workers[attempt.worker].skew
    stop = StopOrder(reason=event.reason, at=at, trigger=event.trigger, skew=skew)
    _change_attempt(cluster, event, records, state=AttemptState.STOPPING, stop=stop)


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
    )
    task = _end_attempt(cluster, event, records, end, at, refused=bool(held_up))
    if held_up and not (task.state.terminal or cluster.jobs[task.job].is_gang):
        cluster.tasks[task.id] = records.change(task, refusals=task.refusals + 1)


def _attempts_reaped(cluster: Cluster, event: ev.AttemptsReaped, at: float, records: Records) -> None:
    outputs = cluster.outputs[event.worker]
    asked = (*event.attempts, *event.left)
    if not asked or sorted(asked) != sorted(outputs.first[: len(asked)]):
        raise IllegalTransitionError(f"{event}: these are not the oldest whose output is left there")
    outputs = records.change(outputs.minus(len(asked)), asked_at=at)
    for attempt_id in event.left:
        outputs = outputs.plus(attempt_id)
    cluster.outputs[event.worker] = outputs
    for attempt_id in event.attempts:
        task = cluster.tasks[attempt_id.task]
        reaped = records.change(task.attempts[attempt_id.number], reaped_at=at)
        number = attempt_id.number
        attempts = (*task.attempts[:number], reaped, *task.attempts[number + 1 :])
        cluster.tasks[task.id] = records.change(task, attempts=attempts)


def _task_requeued(cluster: Cluster, event: ev.TaskRequeued, _at: float, records: Records) -> None:
    task = cluster.tasks[event.task]
    if task.state.terminal or any(attempt.live and attempt.stop is None for attempt in task.attempts):
        raise illegal(event, task)
    single = not cluster.jobs[task.job].is_gang
    cluster.tasks[task.id] = records.change(
        task,
        state=TaskState.PENDING,
        failures=task.failures + (single and event.reason in PROGRAM_FAILURES),
        preemptions=task.preemptions + (single and event.reason in INFRASTRUCTURE),
    )


def _task_ended(cluster: Cluster, event: ev.TaskEnded, _at: float, records: Records) -> None:
    task = cluster.tasks[event.task]
    if task.state.terminal or not event.state.terminal:
        raise illegal(event, task)
    cluster.tasks[task.id] = records.change(task, state=event.state, end=event.end)


def _change_attempt(cluster: Cluster, event: ev.AttemptEvent, records: Records, **changes: Any) -> Task:
    task = cluster.tasks[event.task]
    number = event.attempt
    if not 0 <= number < len(task.attempts) or not (attempt := task.attempts[number]).live:
        raise illegal(event, task)
    if (changed := records.change(attempt, **changes)) is not attempt:
        attempts = (*task.attempts[:number], changed, *task.attempts[number + 1 :])
        task = cluster.tasks[task.id] = records.change(task, attempts=attempts)
    return task


def _end_attempt(
    cluster: Cluster,
    event: ev.AttemptEvent,
    records: Records,
    end: End,
    at: float,
    *,
    refused: bool = False,
) -> Task:
    over = event.attempt_id
    worker = cluster.workers[cluster.attempt(over).worker]
    task = _change_attempt(
        cluster, event, records, state=AttemptState.ENDED, end=end, ended_at=at, refused=refused
    )
    claims = {attempt: claim for attempt, claim in worker.claims.items() if attempt != over}
    cluster.workers[worker.id] = records.change(worker, claims=claims)
    if not task.attempts[event.attempt].presumed:  # else it may still run
        _keep_output(cluster, worker.id, over)
    return task


def _keep_output(cluster: Cluster, worker: WorkerId, attempt: AttemptId) -> None:
    cluster.outputs[worker] = cluster.outputs.get(worker, Outputs()).plus(attempt)


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
    ev.AttemptsReaped: _attempts_reaped,
    ev.TaskRequeued: _task_requeued,
    ev.TaskEnded: _task_ended,
}
