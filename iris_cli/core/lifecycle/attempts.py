"""Effects of a worker's report on an attempt and its task."""

from collections.abc import Container, Iterable
from functools import partial
from itertools import chain

from iris_cli.core import Attempt, AttemptState, Cluster, End, EndReason, Job, Limits, Task, TaskState
from iris_cli.core.events import events
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.core.lifecycle import jobs, workers
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, reason_of_exit, vm_is_preempted
from iris_cli.core.model.worker import VM_IS_PREEMPTED
from iris_cli.core.units import format_duration

_NOT_RUNNING_YET = frozenset({RemoteState.PREPARING, RemoteState.PREPARED, RemoteState.LAUNCHING})
_WITH_PROCESSES = frozenset({RemoteState.RUNNING, RemoteState.ORPHANED})
_FENCED = frozenset({RemoteState.STOPPED, RemoteState.CANCELLED})
_NOT_STARTED = "iris: not started: "
_MAX_DETAIL = 300  # characters
_NOT_BY_SHUTDOWN = frozenset({EndReason.OK, EndReason.TIMEOUT})
"""Ends that a shutdown of the host can't have caused."""
_VANISHED = frozenset({RemoteState.LOST, RemoteState.NOSTART})  # a started attempt with NOSTART is lost


def apply_report(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    """Apply a worker's report on one attempt. A late report on an ended attempt changes nothing.

    The verdict on a gang's round comes later, from `gangs.decide_round`, after all answers of the poll.
    """
    attempt = draft.cluster.attempt(attempt_id)
    if not attempt.live or attempt.token != report.token:
        return
    if vm_is_preempted(report.facts):
        workers.record_preemption(draft, attempt.worker, report.ended_ago or 0.0, limits)
    if report.state in _NOT_RUNNING_YET:
        _apply_acknowledged(draft, attempt_id, report, limits)
    elif report.state in _WITH_PROCESSES:
        _apply_running(draft, attempt_id, report)
        _record_output(draft, attempt_id, report, limits)
        _stop_overdue(draft, attempt_id, report, limits)
    elif report.state is RemoteState.EXITED:
        _apply_exit(draft, attempt_id, report)
    elif report.state is RemoteState.NOSTART and attempt.started_at is None:
        _apply_no_start(draft, attempt_id, report, limits)
    elif report.state in _VANISHED:
        error = "the attempt vanished: no process, no exit record"
        end = End(reason=EndReason.WORKER_FAILED, at=draft.at, error=error, log_tail=report.log_tail)
        end_attempt(draft, attempt_id, end)
    elif report.state is RemoteState.ABSENT and attempt.acknowledged:
        fence_unproven(draft, attempt_id)  # its directory is gone
    elif report.state in _FENCED:
        _apply_fenced(draft, attempt_id, report)
    elif report.state is RemoteState.UNKILLABLE:
        if attempt.stop is not None and not attempt.unkillable:
            draft.record(events.AttemptUnkillable(task=attempt_id.task, attempt=attempt_id.number))
        workers.record_unkillable(draft, attempt.worker)


def record_not_sent(draft: Draft, attempt_id: AttemptId, error: str) -> None:
    """Record that an attempt was never sent to its worker. Only the invocation that assigned it can know this."""
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is not AttemptState.ENDED and not attempt.taken_over and not attempt.acknowledged:
        _fail_dispatch(draft, attempt_id, error)


def take_over(draft: Draft, limits: Limits) -> None:
    """Let any invocation repeat the dispatch of attempts that were not acknowledged within `dispatch_lease`.

    The invocation that assigned these attempts has died or was suspended. Afterwards only a worker's report ends them.
    """
    stale = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts()
        if not attempt.acknowledged and not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease
    ]
    release_dispatch(draft, stale)


def release_dispatch(draft: Draft, attempt_ids: Iterable[AttemptId]) -> None:
    """Let any invocation repeat the dispatch of these attempts. Afterwards only a worker's report ends them."""
    for attempt_id in attempt_ids:
        attempt = draft.cluster.attempt(attempt_id)
        if attempt.state is AttemptState.ASSIGNED and not attempt.taken_over:
            draft.record(events.DispatchTakenOver(task=attempt_id.task, attempt=attempt_id.number))


def fence_unstartable(draft: Draft, unable_jobs: Container[JobId]) -> list[JobId]:
    """Fence the attempts of jobs that this machine can't start and no other may dispatch. Return their jobs."""
    unstartable = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts()
        if attempt_id.task.job in unable_jobs
        and attempt.state is AttemptState.ASSIGNED
        and attempt.taken_over
        and not attempt.acknowledged
    ]
    for attempt_id in unstartable:
        jobs.stop(draft, attempt_id, EndReason.DISPATCH_FAILED)
    return [attempt_id.task.job for attempt_id in unstartable]


def fence_held_up(draft: Draft, attempt_id: AttemptId, limits: Limits) -> None:
    """Fence an attempt that the worker did not start after `go`, and count a refusal by the worker."""
    worker = draft.cluster.attempt(attempt_id).worker
    refusals = draft.cluster.workers[worker].refusals
    error = f"{worker} acknowledged the launch but did not start it"
    draft.record(events.AttemptHeldUp(task=attempt_id.task, attempt=attempt_id.number, error=error))
    jobs.stop(draft, attempt_id, EndReason.DISPATCH_FAILED)
    if draft.cluster.workers[worker].refusals > refusals:
        workers.record_refusal(draft, worker, error, limits)


def end_attempt(draft: Draft, attempt_id: AttemptId, end: End) -> None:
    """Record the proven end of an attempt. A failure after a stop order of `iris retry` is not charged."""
    stop = draft.cluster.attempt(attempt_id).stop
    if stop is not None and stop.reason is EndReason.RETRIED and end.reason is not EndReason.OK:
        return end_stopped(draft, attempt_id, end)
    draft.record(events.AttemptEnded(task=attempt_id.task, attempt=attempt_id.number, end=end))
    return _requeue_or_end(draft, attempt_id.task, end)


def end_stopped(draft: Draft, attempt_id: AttemptId, known: AttemptReport | End) -> None:
    """Record the proven end of a stopping attempt, with the exit code, log tail and run time in `known`."""
    draft.record(
        events.AttemptStopped(
            task=attempt_id.task,
            attempt=attempt_id.number,
            exit_code=known.exit_code,
            log_tail=known.log_tail,
            ran=known.ran,
        )
    )
    end = draft.cluster.attempt(attempt_id).end
    assert end is not None
    _requeue_or_end(draft, attempt_id.task, end)


def end_with_worker(draft: Draft, attempt_id: AttemptId, error: str) -> None:
    """End an attempt whose worker is gone. An attempt that never started is not charged.

    `error` names the worker or its slice, because it is also shown where no worker is.
    """
    attempt = draft.cluster.attempt(attempt_id)
    end = End(reason=EndReason.WORKER_FAILED, at=draft.at, error=error)
    if draft.cluster.tasks[attempt_id.task].state.terminal:
        end_stopped(draft, attempt_id, end)
    elif attempt.started_at is None:
        _fail_dispatch(draft, attempt_id, error)
    else:  # a stopping attempt, too, because its host may have caused the failure of its siblings
        end_attempt(draft, attempt_id, end)


def apply_earlier_boot(draft: Draft, attempt_id: AttemptId, report: AttemptReport, error: str) -> None:
    """Apply a report about a time before a reboot, which may have caused any exit except a success or a timeout."""
    # In other states than EXITED, the report has the exit code of the set-up.
    code = report.exit_code if report.state is RemoteState.EXITED else None
    if code is not None and reason_of_exit(code, report.cause) in _NOT_BY_SHUTDOWN:
        # After a reboot, the worker's clock can't show when the attempt ended.
        return _apply_exit(draft, attempt_id, report.without_times())
    return end_with_worker(draft, attempt_id, error)


def _requeue_or_end(draft: Draft, task_id: TaskId, end: End) -> None:
    """Requeue a task outside a gang, or end it, after the end of its attempt."""
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
    draft.record(events.TaskEnded(task=task_id, state=state, end=end.without_details()))
    # Tasks mostly end in order, so the next task is checked first.
    others = (job.task_ids[index] for index in chain(range(task.index + 1, job.replicas), range(task.index)))
    if state is TaskState.SUCCEEDED and any(not draft.cluster.tasks[each].state.terminal for each in others):
        return None  # the job can't end yet, so iris doesn't compute its state from all its tasks
    return jobs.end_if_decided(draft, task.job)


def _may_retry(job: Job, task: Task, reason: EndReason) -> bool:
    if reason in PROGRAM_FAILURES:
        return task.failures < job.max_retries_failure
    if reason in INFRASTRUCTURE:
        return task.preemptions < job.max_retries_preemption
    if reason is EndReason.RETRIED:
        return True
    return reason is EndReason.DISPATCH_FAILED and task.refusals < job.max_dispatch_failures


def _acknowledge(draft: Draft, attempt_id: AttemptId) -> None:
    if not draft.cluster.attempt(attempt_id).acknowledged:
        draft.record(events.TaskDispatched(task=attempt_id.task, attempt=attempt_id.number))


def _fail_dispatch(draft: Draft, attempt_id: AttemptId, error: str, *, refused: bool = False) -> None:
    """Record that an attempt ended before its program started. Nothing is charged to the task's retries."""
    draft.record(
        events.TaskDispatchFailed(
            task=attempt_id.task, attempt=attempt_id.number, error=error, refused=refused
        )
    )


def _apply_acknowledged(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    _acknowledge(draft, attempt_id)
    if attempt.state is not AttemptState.ASSIGNED:
        return
    if report.state is RemoteState.LAUNCHING and (report.started_ago or 0.0) > limits.launch_timeout:
        fence_held_up(draft, attempt_id, limits)
    # The worker's watchdog stops a set-up that takes too long; if the watchdog is dead, iris stops it. The time by the
    # worker's clock is used if known, because the operator's clock may have been set ahead.
    setup_timeout = draft.cluster.jobs[attempt_id.task.job].setup_timeout
    duration = draft.at - attempt.assigned_at if report.started_ago is None else report.started_ago
    waits = limits.settle_seconds + 2 * limits.device_wait  # the launch may also have waited for devices
    is_late = 0 < setup_timeout < duration - waits
    if report.state is RemoteState.PREPARING and is_late:
        jobs.stop(draft, attempt_id, EndReason.SETUP_FAILED)


def _apply_running(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    _acknowledge(draft, attempt_id)
    if attempt.started_at is None:
        at = round(draft.at - (report.started_ago or 0.0), 3)
        draft.record(events.TaskRunning(task=attempt_id.task, attempt=attempt_id.number, started_at=at))
    if report.state is RemoteState.ORPHANED and not attempt.orphaned:
        draft.record(events.AttemptOrphaned(task=attempt_id.task, attempt=attempt_id.number))


def _stop_overdue(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    """Stop a running task that exceeds its time limit because its wrapper or its watchdog was killed."""
    job = draft.cluster.jobs[attempt_id.task.job]
    # The worker's clock counts, also if the operator's clock was set ahead after the answer.
    ran = (report.started_ago or 0.0) - report.waited
    is_overdue = 0 < job.timeout < ran - job.grace - limits.settle_seconds
    if is_overdue and draft.cluster.attempt(attempt_id).state is AttemptState.RUNNING:
        jobs.stop(draft, attempt_id, EndReason.TIMEOUT)


def _record_output(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    """Record that a running task became quiet, or has output again."""
    attempt = draft.cluster.attempt(attempt_id)
    if report.last_output_ago is None or attempt.state is not AttemptState.RUNNING:
        return
    silent_after = _silent_after_of(draft.cluster, attempt_id, limits)
    marked_since, since = attempt.quiet_since, round(draft.at - report.waited - report.last_output_ago, 3)
    event = partial(events.TaskQuiet, task=attempt_id.task, attempt=attempt_id.number)
    if went_quiet(draft.cluster, attempt_id, report, draft.at, limits):
        draft.record(event(since=since, place=report.place))
    elif (
        marked_since is not None
        and not 0 < silent_after <= report.last_output_ago
        and not _is_older(draft.at, marked_since, since, silent_after)
    ):
        draft.record(event(since=None))


def _is_older(now: float, marked: float, reported: float, silent_after: float) -> bool:
    """Return whether this answer is older than the answer that marked the task quiet, although it arrived later.

    Newer output is at least `silent_after` later than `marked`. Half of that is enough, because times are inexact.
    """
    return silent_after <= now - marked and abs(reported - marked) < silent_after / 2


def went_quiet(
    cluster: Cluster, attempt_id: AttemptId, report: AttemptReport, now: float, limits: Limits
) -> bool:
    """Return whether the report shows a quiet period of a running attempt that is not in the log yet."""
    silent_after = _silent_after_of(cluster, attempt_id, limits)
    if report.last_output_ago is None or not 0 < silent_after <= report.last_output_ago:
        return False
    marked_since = cluster.attempt(attempt_id).quiet_since
    # Two quiet periods with output between them begin at least `silent_after` apart.
    return marked_since is None or now - report.waited - report.last_output_ago >= marked_since + silent_after


def _silent_after_of(cluster: Cluster, attempt_id: AttemptId, limits: Limits) -> float:
    job_setting = cluster.jobs[attempt_id.task.job].silent_after
    return limits.silent_after if job_setting is None else job_setting


def _apply_exit(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    _apply_running(draft, attempt_id, report)
    assert report.exit_code is not None
    attempt = draft.cluster.attempt(attempt_id)
    at = _ended_at(draft, report)
    reason = reason_of_exit(report.exit_code, report.cause, report.facts)
    task = draft.cluster.tasks[attempt_id.task]
    is_open_single_task = not (draft.cluster.jobs[task.job].is_gang or task.state.terminal)
    was_stopped = attempt.stop is not None and not _ended_before_stop(draft, attempt, at)
    if was_stopped and not (is_open_single_task and reason is EndReason.OK):
        # The stop order counts as the cause of any later end, so the exit code is no evidence. But if a task outside a
        # gang succeeded before the stop order reached its worker, the success counts.
        return end_stopped(draft, attempt_id, report)
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
    return end_attempt(draft, attempt_id, end)


def _ended_at(draft: Draft, report: AttemptReport) -> float:
    """Return the time of an end by the worker's clock; the time of the report if the worker does not know it."""
    return round(draft.at - (report.ended_ago or 0.0), 3)


def _ended_before_stop(draft: Draft, attempt: Attempt, at: float) -> bool:
    """Return whether an attempt ended before its stop order. False if a clock was changed since the order."""
    assert attempt.stop is not None
    skew = draft.cluster.workers[attempt.worker].skew
    clock_changed = draft.at < attempt.stop.at or skew != attempt.stop.skew
    return at < attempt.stop.at and not clock_changed


def _apply_no_start(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is AttemptState.STOPPING:
        return end_stopped(draft, attempt_id, report)
    if vm_is_preempted(report.facts):  # not charged, because the command has not started
        return _fail_dispatch(draft, attempt_id, VM_IS_PREEMPTED)
    if report.cause == "setup":
        end = End(
            reason=EndReason.SETUP_FAILED,
            at=_ended_at(draft, report),
            exit_code=report.exit_code,
            log_tail=report.log_tail,
            facts=report.facts,
        )
        return end_attempt(draft, attempt_id, end)
    error = _refusal_text(report)
    _fail_dispatch(draft, attempt_id, error, refused=True)
    workers.record_refusal(draft, attempt.worker, error, limits)
    task = draft.cluster.tasks[attempt_id.task]
    job = draft.cluster.jobs[task.job]
    if not job.is_gang and not task.state.terminal and task.refusals >= job.max_dispatch_failures:
        end = End(reason=EndReason.DISPATCH_FAILED, at=draft.at, error=error)
        draft.record(events.TaskEnded(task=task.id, state=TaskState.FAILED, end=end))
        jobs.end_if_decided(draft, task.job)
    return None


def _refusal_text(report: AttemptReport) -> str:
    """Return why a worker refused to start an attempt, with the last line of the attempt's log."""
    line = report.log_tail.rstrip().rpartition("\n")[2]
    detail = line.removeprefix(_NOT_STARTED)[:_MAX_DETAIL] if line.startswith(_NOT_STARTED) else ""
    error = f"the worker refused to start it: {report.cause or 'no cause given'}"
    return f"{error} ({detail})" if detail else error


def fence_unproven(draft: Draft, attempt_id: AttemptId) -> None:
    """Order the stop of an attempt that may run on a host that lost iris's files or must not run the attempt."""
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.stop is None:
        started = attempt.started_at is not None
        jobs.stop(draft, attempt_id, EndReason.WORKER_FAILED if started else EndReason.DISPATCH_FAILED)


def _apply_fenced(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    lease = report.cause == "lease"
    if lease:
        _apply_running(draft, attempt_id, report)  # only a started attempt has a lease
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is AttemptState.STOPPING:
        end_stopped(draft, attempt_id, report)
    elif attempt.state is AttemptState.ASSIGNED:
        # An invocation fenced the attempt and died before it recorded the fence.
        _fail_dispatch(draft, attempt_id, "fenced before it started")
    else:
        error = "lease expired: no poll in time" if lease else "stopped on the worker, not by iris"
        end = End(
            reason=EndReason.WORKER_FAILED,
            at=_ended_at(draft, report),
            error=error,
            log_tail=report.log_tail,
            ran=report.ran,
        )
        end_attempt(draft, attempt_id, end)
