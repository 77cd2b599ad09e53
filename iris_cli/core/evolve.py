"""The one interpreter of the log: what each event does to the tables. It records; it decides nothing.

Live use and replay go through the same functions, so that tomorrow's rules never rewrite yesterday's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Event, Transaction
from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, End, EndReason
from iris_cli.core.task import Attempt, AttemptState, StopOrder, Task, TaskState
from iris_cli.core.worker import Claim, Worker, WorkerCondition


class IllegalTransitionError(Exception):
    """An event does not fit the state it met. The message tells the whole story of its task."""


class Draft:
    """A cluster being decided on: what is recorded here is applied at once, and waits to be committed."""

    def __init__(self, cluster: Cluster, at: float) -> None:
        self.cluster = cluster.copy()
        self.at = at
        self.events: list[Event] = []

    def record(self, *events: Event) -> None:
        """Apply events in order. Raises IllegalTransitionError."""
        for event in events:
            _apply(self.cluster, event, self.at)
            self.events.append(event)

    @property
    def tasks_to_kill(self) -> tuple[TaskId, ...]:
        """The tasks whose live attempts are to be stopped by what was recorded, in that order."""
        return tuple(event.task for event in self.events if isinstance(event, ev.AttemptStopRequested))


def evolve(cluster: Cluster, events: Iterable[Event], at: float) -> Cluster:
    """The cluster after `events`, all of time `at`; the given one is untouched. Raises IllegalTransitionError."""
    draft = cluster.copy()
    for event in events:
        _apply(draft, event, at)
    return draft


def replay(transactions: Iterable[Transaction], start: Cluster | None = None) -> Cluster:
    """The cluster after the given transactions, from nothing or from `start`. Raises IllegalTransitionError."""
    draft = start.copy() if start is not None else Cluster()
    for transaction in transactions:
        for event in transaction.events:
            _apply(draft, event, transaction.at)
        draft.seq, draft.at = transaction.seq, transaction.at
    return draft


def _apply(cluster: Cluster, event: Event, at: float) -> None:
    try:
        _APPLY[type(event)](cluster, event, at)
    except KeyError as error:
        raise IllegalTransitionError(f"{event} refers to what does not exist: {error}") from error


def _illegal(event: Event, task: Task) -> IllegalTransitionError:
    story = "; ".join(
        f"attempt-{attempt.number} on {attempt.worker} {attempt.state}"
        + (f" ({attempt.end.reason})" if attempt.end else "")
        for attempt in task.attempts
    )
    return IllegalTransitionError(f"{event} does not fit {task.id}, {task.state}: {story or 'never placed'}")


# The cluster and its workers


def _cluster_created(cluster: Cluster, event: ev.ClusterCreated, _at: float) -> None:
    cluster.name = event.name


def _worker_registered(cluster: Cluster, event: ev.WorkerRegistered, _at: float) -> None:
    if event.worker in cluster.workers:
        raise IllegalTransitionError(f"{event}: the worker is registered already")
    cluster.workers[event.worker] = Worker(
        id=event.worker, connection=event.connection, condition=WorkerCondition.UNPROBED
    )


def _worker_updated(cluster: Cluster, event: ev.WorkerUpdated, _at: float) -> None:
    worker = cluster.workers[event.worker]
    cluster.workers[event.worker] = replace(
        worker,
        connection=event.connection,
        attributes=event.attributes,
        taints=(),
        cpu=event.cpu,
        memory=event.memory,
        chips=event.chips,
        gpus=event.gpus,
        boot_id=event.boot_id,
        incarnation=event.incarnation,
        declared=event.declared,
        unschedulable=bool(event.refusal),
        reason=event.refusal,
    ).with_taints(worker.taints)


def _worker_condition_changed(cluster: Cluster, event: ev.WorkerConditionChanged, at: float) -> None:
    worker = cluster.workers[event.worker]
    healthy = event.condition is WorkerCondition.HEALTHY
    since = None if healthy else at if worker.silent_since is None else worker.silent_since
    cluster.workers[event.worker] = replace(
        worker,
        condition=event.condition,
        reason=worker.reason if worker.unschedulable else event.reason,
        failed_polls=event.failed_polls,
        cooldown_until=event.cooldown_until,
        silent_since=since,
    )


def _worker_quarantined(cluster: Cluster, event: ev.WorkerQuarantined, at: float) -> None:
    worker = cluster.workers[event.worker]
    cluster.workers[event.worker] = replace(
        worker,
        quarantined=not event.lifted,
        quarantine_reason=event.reason,
        quarantined_at=at,
        refusals=0 if event.lifted else worker.refusals,
    )


def _worker_tainted(cluster: Cluster, event: ev.WorkerTainted, _at: float) -> None:
    worker = cluster.workers[event.worker]
    others = tuple(taint for taint in worker.taints if taint != event.taint)
    cluster.workers[event.worker] = worker.with_taints(others if event.removed else (*others, event.taint))


def _worker_drained(cluster: Cluster, event: ev.WorkerDrained, _at: float) -> None:
    worker = cluster.workers[event.worker]
    cluster.workers[event.worker] = replace(worker, draining=True, drain_reason=event.reason)


def _worker_uncordoned(cluster: Cluster, event: ev.WorkerUncordoned, _at: float) -> None:
    cluster.workers[event.worker] = replace(
        cluster.workers[event.worker],
        draining=False,
        drain_reason="",
        quarantined=False,
        quarantine_reason="",
        refusals=0,
        cooldown_until=0.0,
    )


def _worker_forgotten(cluster: Cluster, event: ev.WorkerForgotten, _at: float) -> None:
    if cluster.workers[event.worker].claims:
        raise IllegalTransitionError(f"{event}: attempts still live there")
    del cluster.workers[event.worker]


# Jobs


def _job_submitted(cluster: Cluster, event: ev.JobSubmitted, at: float) -> None:
    job = event.job
    if job.id in cluster.jobs:
        raise IllegalTransitionError(f"job {job.id} exists already")
    cluster.jobs[job.id] = replace(job, submitted_at=at, order=len(cluster.jobs))
    for task in job.task_ids:
        cluster.tasks[task] = Task(id=task)


def _job_cancelled(cluster: Cluster, event: ev.JobCancelled, _at: float) -> None:
    cluster.jobs[event.job] = replace(_open_job(cluster, event, event.job), cancelled=True)


def _job_ended(cluster: Cluster, event: ev.JobEnded, _at: float) -> None:
    cluster.jobs[event.job] = replace(_open_job(cluster, event, event.job), end=event.end)


def _gang_round_ended(cluster: Cluster, event: ev.GangRoundEnded, _at: float) -> None:
    job = _open_job(cluster, event, event.job)
    if not job.settled_rounds == event.round < job.rounds:
        raise IllegalTransitionError(
            f"{event}: of {job.rounds} rounds of {job.id}, {job.settled_rounds} are settled"
        )
    cluster.jobs[event.job] = replace(
        job,
        settled_rounds=event.round + 1,
        failed_rounds=job.failed_rounds + (event.reason in PROGRAM_FAILURES),
        preempted_rounds=job.preempted_rounds + (event.reason in INFRASTRUCTURE),
        refused_rounds=job.refused_rounds + event.refused if event.reason is EndReason.DISPATCH_FAILED else 0,
    )


# Tasks and attempts


def _task_assigned(cluster: Cluster, event: ev.TaskAssigned, at: float) -> None:
    task = cluster.tasks[event.task]
    lives = any(attempt.live for attempt in task.attempts)
    if task.state is not TaskState.PENDING or lives or event.attempt != len(task.attempts):
        raise _illegal(event, task)
    job = cluster.jobs[task.job]
    if job.is_gang and job.rounds == job.settled_rounds:
        job = cluster.jobs[task.job] = replace(job, rounds=job.rounds + 1)
    attempt = Attempt(
        number=event.attempt,
        worker=event.worker,
        token=event.token,
        round=max(0, job.rounds - 1),
        gpus=event.gpus,
        assigned_at=at,
    )
    _claim(cluster, event.worker, event.attempt_id, Claim.of(job.resources, event.gpus))
    cluster.tasks[task.id] = replace(task, state=TaskState.ASSIGNED, attempts=(*task.attempts, attempt))


def _dispatch_taken_over(cluster: Cluster, event: ev.DispatchTakenOver, _at: float) -> None:
    _change_attempt(cluster, event, taken_over=True)


def _task_dispatched(cluster: Cluster, event: ev.TaskDispatched, _at: float) -> None:
    _change_attempt(cluster, event, acknowledged=True)


def _task_dispatch_failed(cluster: Cluster, event: ev.TaskDispatchFailed, at: float) -> None:
    if cluster.attempt(event.attempt_id).started_at is not None:
        raise _illegal(event, cluster.tasks[event.task])
    end = End(reason=EndReason.DISPATCH_FAILED, at=at, error=event.error)
    task = _end_attempt(cluster, event, end, at, refused=event.refused)
    worker = cluster.workers[task.attempts[event.attempt].worker]
    if event.refused:
        cluster.workers[worker.id] = replace(worker, refusals=worker.refusals + 1)
    if not task.state.terminal:
        charged = event.refused and not cluster.jobs[task.job].is_gang
        cluster.tasks[task.id] = replace(task, state=TaskState.PENDING, refusals=task.refusals + charged)


def _task_running(cluster: Cluster, event: ev.TaskRunning, _at: float) -> None:
    attempt = cluster.attempt(event.attempt_id)
    if attempt.started_at is not None:
        raise _illegal(event, cluster.tasks[event.task])
    stays = attempt.state is AttemptState.STOPPING  # a stopped attempt goes on stopping, but did start
    state = attempt.state if stays else AttemptState.RUNNING
    task = _change_attempt(cluster, event, state=state, acknowledged=True, started_at=event.started_at)
    running = TaskState.RUNNING if task.state is TaskState.ASSIGNED else task.state
    cluster.tasks[task.id] = replace(task, state=running, refusals=0)
    worker = cluster.workers[attempt.worker]
    if worker.refusals:
        cluster.workers[worker.id] = replace(worker, refusals=0)


def _attempt_ended(cluster: Cluster, event: ev.AttemptEnded, at: float) -> None:
    _end_attempt(cluster, event, event.end, at)


def _attempt_stop_requested(cluster: Cluster, event: ev.AttemptStopRequested, at: float) -> None:
    if cluster.attempt(event.attempt_id).stop is not None:
        raise _illegal(event, cluster.tasks[event.task])
    stop = StopOrder(reason=event.reason, at=at, trigger=event.trigger)
    _change_attempt(cluster, event, state=AttemptState.STOPPING, stop=stop)


def _attempt_stopped(cluster: Cluster, event: ev.AttemptStopped, at: float) -> None:
    stop = cluster.attempt(event.attempt_id).stop
    if stop is None:
        raise _illegal(event, cluster.tasks[event.task])
    end = End(
        reason=stop.reason, at=at, exit_code=event.exit_code, trigger=stop.trigger, log_tail=event.log_tail
    )
    _end_attempt(cluster, event, end, at)


def _task_requeued(cluster: Cluster, event: ev.TaskRequeued, _at: float) -> None:
    task = cluster.tasks[event.task]
    if task.state.terminal or any(attempt.live and attempt.stop is None for attempt in task.attempts):
        raise _illegal(event, task)
    single = not cluster.jobs[task.job].is_gang
    cluster.tasks[task.id] = replace(
        task,
        state=TaskState.PENDING,
        failures=task.failures + (single and event.reason in PROGRAM_FAILURES),
        preemptions=task.preemptions + (single and event.reason in INFRASTRUCTURE),
    )


def _task_ended(cluster: Cluster, event: ev.TaskEnded, _at: float) -> None:
    task = cluster.tasks[event.task]
    if task.state.terminal or not event.state.terminal:
        raise _illegal(event, task)
    cluster.tasks[task.id] = replace(task, state=event.state, end=event.end)


# Shared by the above


def _open_job(cluster: Cluster, event: Event, job_id: JobId) -> Job:
    job = cluster.jobs[job_id]
    if job.end is not None:
        raise IllegalTransitionError(f"{event}: the job has ended already ({job.end.reason})")
    return job


def _change_attempt(cluster: Cluster, event: ev.AttemptEvent, **changes: Any) -> Task:
    task = cluster.tasks[event.task]
    if not 0 <= event.attempt < len(task.attempts) or not task.attempts[event.attempt].live:
        raise _illegal(event, task)
    attempts = list(task.attempts)
    attempts[event.attempt] = replace(attempts[event.attempt], **changes)
    task = cluster.tasks[task.id] = replace(task, attempts=tuple(attempts))
    return task


def _end_attempt(
    cluster: Cluster, event: ev.AttemptEvent, end: End, at: float, *, refused: bool = False
) -> Task:
    worker = cluster.workers[cluster.attempt(event.attempt_id).worker]
    task = _change_attempt(cluster, event, state=AttemptState.ENDED, end=end, ended_at=at, refused=refused)
    claims = {attempt: claim for attempt, claim in worker.claims.items() if attempt != event.attempt_id}
    cluster.workers[worker.id] = replace(worker, claims=claims)
    return task


def _claim(cluster: Cluster, worker_id: WorkerId, attempt: AttemptId, claim: Claim) -> None:
    worker = cluster.workers[worker_id]
    cluster.workers[worker_id] = replace(worker, claims={**worker.claims, attempt: claim})


_APPLY: dict[type[Event], Callable[[Cluster, Any, float], None]] = {
    ev.ClusterCreated: _cluster_created,
    ev.WorkerRegistered: _worker_registered,
    ev.WorkerUpdated: _worker_updated,
    ev.WorkerConditionChanged: _worker_condition_changed,
    ev.WorkerQuarantined: _worker_quarantined,
    ev.WorkerTainted: _worker_tainted,
    ev.WorkerDrained: _worker_drained,
    ev.WorkerUncordoned: _worker_uncordoned,
    ev.WorkerForgotten: _worker_forgotten,
    ev.JobSubmitted: _job_submitted,
    ev.JobCancelled: _job_cancelled,
    ev.JobEnded: _job_ended,
    ev.GangRoundEnded: _gang_round_ended,
    ev.TaskAssigned: _task_assigned,
    ev.DispatchTakenOver: _dispatch_taken_over,
    ev.TaskDispatched: _task_dispatched,
    ev.TaskDispatchFailed: _task_dispatch_failed,
    ev.TaskRunning: _task_running,
    ev.AttemptEnded: _attempt_ended,
    ev.AttemptStopRequested: _attempt_stop_requested,
    ev.AttemptStopped: _attempt_stopped,
    ev.TaskRequeued: _task_requeued,
    ev.TaskEnded: _task_ended,
}
