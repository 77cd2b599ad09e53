"""Effects of a worker's report on an attempt and its task."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from itertools import chain

from iris_cli.core import AttemptId, AttemptState, Cluster, EndReason, Job, JobId, Limits, TaskId, TaskState
from iris_cli.core.events import events
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import jobs, workers
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import (
    INFRASTRUCTURE,
    PROGRAM_FAILURES,
    Attempt,
    End,
    Task,
    reason_of_exit,
    vm_is_preempted,
)
from iris_cli.core.units import format_duration

_HAS_IT = frozenset({RemoteState.PREPARING, RemoteState.PREPARED, RemoteState.LAUNCHING})
_RUNS = frozenset({RemoteState.RUNNING, RemoteState.ORPHANED})
_FENCED = frozenset({RemoteState.STOPPED, RemoteState.CANCELLED})
_NOT_STARTED = "iris: not started: "
_LONGEST_WORDS = 300
_SAID_AND_DONE = frozenset({EndReason.OK, EndReason.TIMEOUT})
"""Exits that a shutdown of the host can't have caused: a later reboot does not change them."""
_VANISHED = frozenset({RemoteState.LOST, RemoteState.NOSTART})  # NOSTART of a started attempt counts as lost


def reported(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    """Apply one line of a worker's answer. A late report about an ended attempt changes nothing.

    The round of a gang is decided by `gangs.settle` after the whole poll.
    """
    attempt = draft.cluster.attempt(attempt_id)
    if not attempt.live or attempt.token != report.token:
        return
    if vm_is_preempted(report.facts):
        workers.preempted(draft, attempt.worker, report.ended_ago or 0.0, limits)
    if report.state in _HAS_IT:
        _acknowledged(draft, attempt_id, report, limits)
    elif report.state in _RUNS:
        _running(draft, attempt_id, report)
        _note_output(draft, attempt_id, report, limits)
    elif report.state is RemoteState.EXITED:
        _exited(draft, attempt_id, report)
    elif report.state is RemoteState.NOSTART and attempt.started_at is None:
        _not_started(draft, attempt_id, report, limits)
    elif report.state in _VANISHED:
        error = "the attempt vanished: no process, no exit record"
        end = End(reason=EndReason.WORKER_FAILED, at=draft.at, error=error, log_tail=report.log_tail)
        ended(draft, attempt_id, end)
    elif report.state is RemoteState.ABSENT and attempt.acknowledged:
        _directory_gone(draft, attempt_id, attempt)
    elif report.state in _FENCED:
        _fenced(draft, attempt_id, report)
    elif report.state is RemoteState.UNKILLABLE:
        _unkillable(draft, attempt_id)


def not_sent(draft: Draft, attempt_id: AttemptId, error: str) -> None:
    """Record that an attempt was never sent. Only the invocation that assigned it may call this, before a take-over."""
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is not AttemptState.ENDED and not attempt.taken_over and not attempt.acknowledged:
        draft.record(events.TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))


def take_over(draft: Draft, limits: Limits) -> None:
    """Take over the attempts whose dispatcher died or slept: from now on only the worker's report ends them."""
    stale = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts()
        if not attempt.acknowledged
        and not attempt.taken_over
        and not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease
    ]
    give_up(draft, stale)


def give_up(draft: Draft, launched: Iterable[AttemptId]) -> None:
    """Leave attempts whose launch got no answer to the next cycle: only the worker's report ends them."""
    for attempt_id in launched:
        attempt = draft.cluster.attempt(attempt_id)
        if attempt.state is AttemptState.ASSIGNED and not attempt.taken_over:
            draft.record(events.DispatchTakenOver(task=attempt_id.task, attempt=attempt_id.number))


def give_back(draft: Draft, unable: Container[JobId]) -> list[JobId]:
    """Fence taken-over attempts that can't be started from this machine, to release resources; return their jobs."""
    held = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts()
        if attempt_id.task.job in unable
        and attempt.state is AttemptState.ASSIGNED
        and attempt.taken_over
        and not attempt.acknowledged
    ]
    for attempt_id in held:
        jobs.stop(draft, attempt_id, EndReason.DISPATCH_FAILED)
    return [attempt_id.task.job for attempt_id in held]


def held_up(draft: Draft, attempt_id: AttemptId, limits: Limits) -> None:
    """Fence an attempt that the worker did not start after the launch order; treat this as a refusal by the worker."""
    worker = draft.cluster.attempt(attempt_id).worker
    refusals = draft.cluster.workers[worker].refusals
    error = f"{worker} acknowledged the launch but did not start it"
    draft.record(events.AttemptHeldUp(task=attempt_id.task, attempt=attempt_id.number, error=error))
    jobs.stop(draft, attempt_id, EndReason.DISPATCH_FAILED)
    if draft.cluster.workers[worker].refusals > refusals:
        workers.refused(draft, worker, error, limits)


def ended(draft: Draft, attempt_id: AttemptId, end: End) -> None:
    """End an attempt by proof. A failure after `iris retry` is not charged: the attempt ends as stopped."""
    stop = draft.cluster.attempt(attempt_id).stop
    if stop is not None and stop.reason is EndReason.RETRIED and end.reason is not EndReason.OK:
        return _stopped(draft, attempt_id, end.exit_code, end.log_tail, end.ran)
    draft.record(events.AttemptEnded(task=attempt_id.task, attempt=attempt_id.number, end=end))
    return _settle_task(draft, attempt_id.task, end)


def stopped(draft: Draft, attempt_id: AttemptId, report: AttemptReport | None = None) -> None:
    """End a stopping attempt by proof. The effect depends on the reason of its stop."""
    if report is None:
        _stopped(draft, attempt_id, None, "", None)
    else:
        _stopped(draft, attempt_id, report.exit_code, report.log_tail, report.ran)


def _stopped(
    draft: Draft, attempt_id: AttemptId, exit_code: int | None, log_tail: str, ran: float | None
) -> None:
    proof = events.AttemptStopped(
        task=attempt_id.task, attempt=attempt_id.number, exit_code=exit_code, log_tail=log_tail, ran=ran
    )
    draft.record(proof)
    end = draft.cluster.attempt(attempt_id).end
    assert end is not None
    _settle_task(draft, attempt_id.task, end)


def worker_gone(draft: Draft, attempt_id: AttemptId, error: str) -> None:
    """End an attempt whose worker is gone. An attempt that never started is not charged."""
    attempt = draft.cluster.attempt(attempt_id)
    if draft.cluster.tasks[attempt_id.task].state.terminal:
        stopped(draft, attempt_id)
    elif attempt.started_at is None:
        draft.record(events.TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))
    else:  # also a stopping one: its host may have caused the failure of its siblings
        end = End(reason=EndReason.WORKER_FAILED, at=draft.at, error=f"{error} ({attempt.worker})")
        ended(draft, attempt_id, end)


def outlasted(draft: Draft, attempt_id: AttemptId, report: AttemptReport, error: str) -> None:
    """Apply an earlier boot's report: a success or time-out counts; the shutdown may have caused any other exit."""
    code = report.exit_code if report.state is RemoteState.EXITED else None  # else of a set-up
    if code is not None and reason_of_exit(code, report.cause) in _SAID_AND_DONE:
        # The worker's clock can't tell any more when it ended.
        return _exited(draft, attempt_id, report.without_times())
    return worker_gone(draft, attempt_id, error)


def _settle_task(draft: Draft, task_id: TaskId, end: End) -> None:
    """Requeue or end a single task after the end of its attempt."""
    task = draft.cluster.tasks[task_id]
    job = draft.cluster.jobs[task.job]
    if job.is_gang or task.state.terminal:
        return None
    if end.reason is EndReason.OK:
        state = TaskState.SUCCEEDED
    elif _may_retry(job, task, end.reason):
        return draft.record(events.TaskRequeued(task=task_id, reason=end.reason))
    else:
        state = TaskState.WORKER_FAILED if end.reason in INFRASTRUCTURE else TaskState.FAILED
    draft.record(events.TaskEnded(task=task_id, state=state, end=end.of_task()))
    if state is TaskState.SUCCEEDED and _others_are_open(draft.cluster, job, task.index):
        return None  # no effect on the job yet; checking costs a look at every task
    return jobs.settle(draft, task.job)


def _others_are_open(cluster: Cluster, job: Job, index: int) -> bool:
    """Return whether another task is open. Tasks mostly end in order, so the next one is checked first."""
    others = chain(range(index + 1, job.replicas), range(index))
    return any(not cluster.tasks[TaskId(job.id, other)].state.terminal for other in others)


def _may_retry(job: Job, task: Task, reason: EndReason) -> bool:
    if reason in PROGRAM_FAILURES:
        return task.failures < job.max_retries_failure
    if reason in INFRASTRUCTURE:
        return task.preemptions < job.max_retries_preemption
    if reason is EndReason.RETRIED:
        return True
    return reason is EndReason.DISPATCH_FAILED and task.refusals < job.max_dispatch_failures


def _acknowledged(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    if not attempt.acknowledged:
        draft.record(events.TaskDispatched(task=attempt_id.task, attempt=attempt_id.number))
    if attempt.state is not AttemptState.ASSIGNED:
        return
    if report.state is RemoteState.LAUNCHING and (report.started_ago or 0.0) > limits.launch_timeout:
        held_up(draft, attempt_id, limits)
    # The worker stops a set-up that takes too long; this covers a dead watchdog. It uses the worker's clock if
    # known: an operator's clock set ahead must not cost an attempt.
    setup_timeout = draft.cluster.jobs[attempt_id.task.job].setup_timeout
    took = draft.at - attempt.assigned_at if report.started_ago is None else report.started_ago
    others = limits.settle_seconds + 2 * limits.device_wait  # time of waiting for devices
    late = 0 < setup_timeout < took - others
    if report.state is RemoteState.PREPARING and late:
        jobs.stop(draft, attempt_id, EndReason.SETUP_FAILED)


def _running(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    if not attempt.acknowledged:
        draft.record(events.TaskDispatched(task=attempt_id.task, attempt=attempt_id.number))
    if attempt.started_at is None:
        started_at = round(draft.at - (report.started_ago or 0.0), 3)
        draft.record(
            events.TaskRunning(task=attempt_id.task, attempt=attempt_id.number, started_at=started_at)
        )
    if report.state is RemoteState.ORPHANED and not attempt.orphaned:
        draft.record(events.AttemptOrphaned(task=attempt_id.task, attempt=attempt_id.number))


def _note_output(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    """Record that a running task went quiet, or has output again."""
    attempt = draft.cluster.attempt(attempt_id)
    if report.last_output_ago is None or attempt.state is not AttemptState.RUNNING:
        return
    silent_after = _silent_after(draft.cluster, attempt_id, limits)
    before, since = attempt.quiet_since, round(draft.at - report.waited - report.last_output_ago, 3)
    noted = partial(events.TaskQuiet, task=attempt_id.task, attempt=attempt_id.number)
    if went_quiet(draft.cluster, attempt_id, report, draft.at, limits):
        draft.record(noted(since=since, place=report.place))
    elif (
        before is not None
        and not 0 < silent_after <= report.last_output_ago
        and not _is_older(draft.at, before, since, silent_after)
    ):
        draft.record(noted(since=None))


def went_quiet(
    cluster: Cluster, attempt_id: AttemptId, report: AttemptReport, now: float, limits: Limits
) -> bool:
    """Return whether the report of a running attempt shows a silence that is not marked yet."""
    silent_after = _silent_after(cluster, attempt_id, limits)
    if report.last_output_ago is None or not 0 < silent_after <= report.last_output_ago:
        return False
    before = cluster.attempt(attempt_id).quiet_since
    # If it wrote between two polls, it was quiet twice, at least `silent_after` apart.
    return before is None or now - report.waited - report.last_output_ago >= before + silent_after


def _silent_after(cluster: Cluster, attempt_id: AttemptId, limits: Limits) -> float:
    own = cluster.jobs[attempt_id.task.job].silent_after
    return limits.silent_after if own is None else own


def _is_older(now: float, marked: float, told: float, silent_after: float) -> bool:
    """Return whether an answer predates the marked silence: another poll was faster.

    Output after the mark comes at least `silent_after` after the marked time; times are not exact.
    """
    return silent_after <= now - marked and abs(told - marked) < silent_after / 2


def _exited(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    _running(draft, attempt_id, report)
    assert report.exit_code is not None
    attempt = draft.cluster.attempt(attempt_id)
    at = round(draft.at - (report.ended_ago or 0.0), 3)
    reason = reason_of_exit(report.exit_code, report.cause, report.facts)
    task = draft.cluster.tasks[attempt_id.task]
    alone = not (draft.cluster.jobs[task.job].is_gang or task.state.terminal)
    if (
        attempt.stop is not None
        and not (alone and reason is EndReason.OK)
        and not _before(draft, attempt, at)
    ):
        # An attempt that ends after its stop order ended because of it: its exit code is no evidence. But a
        # task that succeeded before a stop for a retry reached it is not retried.
        return stopped(draft, attempt_id, report)
    limit = format_duration(draft.cluster.jobs[task.job].timeout) if reason is EndReason.TIMEOUT else ""
    end = End(
        reason=reason,
        at=at,
        exit_code=report.exit_code,
        error=limit,
        log_tail="" if reason is EndReason.OK else report.log_tail,
        ran=report.ran,
        facts=report.facts,
    )
    return ended(draft, attempt_id, end)


def _before(draft: Draft, attempt: Attempt, at: float) -> bool:
    """Return whether an attempt ended before its stop order; False if a clock was set since then."""
    assert attempt.stop is not None
    was_set = draft.at < attempt.stop.at or draft.cluster.workers[attempt.worker].skew != attempt.stop.skew
    return at < attempt.stop.at and not was_set


def _not_started(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is AttemptState.STOPPING:
        return stopped(draft, attempt_id, report)
    if vm_is_preempted(report.facts):  # it has not started, so nothing is charged
        return draft.record(
            events.TaskDispatchFailed(
                task=attempt_id.task, attempt=attempt_id.number, error=workers.VM_IS_PREEMPTED
            )
        )
    if report.cause == "setup":
        end = End(
            reason=EndReason.SETUP_FAILED,
            at=draft.at,
            exit_code=report.exit_code,
            log_tail=report.log_tail,
            facts=report.facts,
        )
        return ended(draft, attempt_id, end)
    error = _refusal(report)
    draft.record(
        events.TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error, refused=True)
    )
    workers.refused(draft, attempt.worker, error, limits)
    task = draft.cluster.tasks[attempt_id.task]
    job = draft.cluster.jobs[task.job]
    if not job.is_gang and not task.state.terminal and task.refusals >= job.max_dispatch_failures:
        end = End(reason=EndReason.DISPATCH_FAILED, at=draft.at, error=error)
        draft.record(events.TaskEnded(task=task.id, state=TaskState.FAILED, end=end))
        jobs.settle(draft, task.job)
    return None


def _refusal(report: AttemptReport) -> str:
    """Return why a worker refused to start an attempt, with the last line of the attempt's log."""
    words = report.log_tail.rstrip().rpartition("\n")[2]
    detail = words.removeprefix(_NOT_STARTED)[:_LONGEST_WORDS] if words.startswith(_NOT_STARTED) else ""
    error = f"the worker refused to start it: {report.cause or 'no cause given'}"
    return f"{error} ({detail})" if detail else error


def _directory_gone(draft: Draft, attempt_id: AttemptId, attempt: Attempt) -> None:
    """Fence an attempt whose directory is gone: its processes may live, so it is not launched into a new directory."""
    if attempt.stop is None:
        started = attempt.started_at is not None
        jobs.stop(draft, attempt_id, EndReason.WORKER_FAILED if started else EndReason.DISPATCH_FAILED)


def _fenced(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    lease = report.cause == "lease"
    if lease:
        _running(draft, attempt_id, report)  # only a started attempt has a lease
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is AttemptState.STOPPING:
        stopped(draft, attempt_id, report)
    elif attempt.state is AttemptState.ASSIGNED:
        # An invocation fenced it and died before recording that: it never started, and never will.
        error = "fenced before it started"
        draft.record(events.TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))
    else:
        error = "lease expired: no poll in time" if lease else "stopped on the worker, not by iris"
        end = End(
            reason=EndReason.WORKER_FAILED, at=draft.at, error=error, log_tail=report.log_tail, ran=report.ran
        )
        ended(draft, attempt_id, end)


def _unkillable(draft: Draft, attempt_id: AttemptId) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.stop is not None and not attempt.unkillable:
        draft.record(events.AttemptUnkillable(task=attempt_id.task, attempt=attempt_id.number))
    workers.unkillable(draft, attempt.worker)
