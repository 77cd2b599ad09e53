"""What a worker's word about one attempt means for the attempt and for its task."""

from __future__ import annotations

from collections.abc import Container, Iterable
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
"""Exits that no shutdown of the host can have caused: so a reboot since then takes nothing from them."""
_VANISHED = frozenset({RemoteState.LOST, RemoteState.NOSTART})  # "not started" of what did start is no answer


def reported(draft: Draft, attempt_id: AttemptId, report: AttemptReport, limits: Limits) -> None:
    """Weigh one line of a worker's answer. A late word about an attempt that is over changes nothing.

    A gang's round is weighed afterwards, by `gangs.settle`, when the whole poll is in.
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
    """The invocation that assigned this attempt never sent it. Only it may say so, before a take-over."""
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is not AttemptState.ENDED and not attempt.taken_over and not attempt.acknowledged:
        draft.record(events.TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))


def take_over(draft: Draft, limits: Limits) -> None:
    """Adopt the attempts whose dispatcher died or slept: from now on only the worker's word ends them."""
    stale = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts()
        if not attempt.acknowledged
        and not attempt.taken_over
        and not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease
    ]
    give_up(draft, stale)


def give_up(draft: Draft, launched: Iterable[AttemptId]) -> None:
    """Leave attempts whose launch got no answer to the next cycle of anybody: only the worker's word ends them."""
    for attempt_id in launched:
        attempt = draft.cluster.attempt(attempt_id)
        if attempt.state is AttemptState.ASSIGNED and not attempt.taken_over:
            draft.record(events.DispatchTakenOver(task=attempt_id.task, attempt=attempt_id.number))


def give_back(draft: Draft, unable: Container[JobId]) -> list[JobId]:
    """Fence what was taken over but can't be started from here, so that it holds nothing; returns the jobs."""
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
    """The worker was told to start it, and did not: it is fenced, and the worker treated as if it had refused."""
    worker = draft.cluster.attempt(attempt_id).worker
    refusals = draft.cluster.workers[worker].refusals
    error = f"{worker} acknowledged the launch but did not start it"
    draft.record(events.AttemptHeldUp(task=attempt_id.task, attempt=attempt_id.number, error=error))
    jobs.stop(draft, attempt_id, EndReason.DISPATCH_FAILED)
    if draft.cluster.workers[worker].refusals > refusals:
        workers.refused(draft, worker, error, limits)


def ended(draft: Draft, attempt_id: AttemptId, end: End) -> None:
    """The attempt is over, by proof. A failure after the order of `iris retry` is not charged: it ends as stopped."""
    stop = draft.cluster.attempt(attempt_id).stop
    if stop is not None and stop.reason is EndReason.RETRIED and end.reason is not EndReason.OK:
        return _stopped(draft, attempt_id, end.exit_code, end.log_tail, end.ran)
    draft.record(events.AttemptEnded(task=attempt_id.task, attempt=attempt_id.number, end=end))
    return _settle_task(draft, attempt_id.task, end)


def stopped(draft: Draft, attempt_id: AttemptId, report: AttemptReport | None = None) -> None:
    """Nothing of an attempt that was to be stopped is left, by proof. What follows depends on why it was."""
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
    """The worker of an attempt is gone, and the attempt with it. What never started is not charged."""
    attempt = draft.cluster.attempt(attempt_id)
    if draft.cluster.tasks[attempt_id.task].state.terminal:
        stopped(draft, attempt_id)
    elif attempt.started_at is None:
        draft.record(events.TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))
    else:  # also one that is being stopped: its host may be what made its siblings fail
        end = End(reason=EndReason.WORKER_FAILED, at=draft.at, error=f"{error} ({attempt.worker})")
        ended(draft, attempt_id, end)


def outlasted(draft: Draft, attempt_id: AttemptId, report: AttemptReport, error: str) -> None:
    """The report of an earlier boot about an attempt: a success counts; any other exit may be the shutdown's doing."""
    code = report.exit_code if report.state is RemoteState.EXITED else None  # else it is that of a set-up
    if code is not None and reason_of_exit(code, report.cause) in _SAID_AND_DONE:
        # When that was, its clock can't tell any more.
        return _exited(draft, attempt_id, report.without_times())
    return worker_gone(draft, attempt_id, error)


def _settle_task(draft: Draft, task_id: TaskId, end: End) -> None:
    """What the end of its attempt means for a single task that goes on."""
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
        return None  # nothing follows from it yet; whether anything does costs a look at every task
    return jobs.settle(draft, task.job)


def _others_are_open(cluster: Cluster, job: Job, index: int) -> bool:
    """Whether another task goes on. Tasks mostly end in their order: so the next one is looked at first."""
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
    # The worker ends a set-up that takes too long; this is for the one whose watchdog died. By the worker's own
    # clock, if it can tell: one that was set ahead here must cost nobody a try.
    setup_timeout = draft.cluster.jobs[attempt_id.task.job].setup_timeout
    took = draft.at - attempt.assigned_at if report.started_ago is None else report.started_ago
    others = limits.settle_seconds + 2 * limits.device_wait  # it waits for devices before and after
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
    """Record that a running task went quiet, or that it writes again."""
    attempt = draft.cluster.attempt(attempt_id)
    if report.last_output_ago is None or attempt.state is not AttemptState.RUNNING:
        return
    own = draft.cluster.jobs[attempt_id.task.job].silent_after
    silent_after = limits.silent_after if own is None else own
    is_quiet = 0 < silent_after <= report.last_output_ago
    before, since = attempt.quiet_since, round(draft.at - report.waited - report.last_output_ago, 3)
    # If nobody polled while it wrote, it has been quiet twice: at least `silent_after` lies between the two.
    if is_quiet and (before is None or since >= before + silent_after):
        draft.record(events.TaskQuiet(task=attempt_id.task, attempt=attempt_id.number, since=since))
    elif before is not None and not is_quiet and not _is_older(draft.at, before, since, silent_after):
        draft.record(events.TaskQuiet(task=attempt_id.task, attempt=attempt_id.number, since=None))


def _is_older(now: float, marked: float, told: float, silent_after: float) -> bool:
    """Whether an answer is about the marked silence, from before it was long enough: another poll was faster.

    What is written after the mark is written at least `silent_after` later; times are not exact.
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
        # What ends after its stop was ordered ends because of it: its exit code is no evidence. But what was to
        # be stopped only to go again elsewhere, and had succeeded before the stop reached it, doesn't go again.
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
    """Whether an attempt ended before its stop was ordered. Not where a clock was set since: that tells no order."""
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
    """Why a worker doesn't start it, with the words that it left at the end of the attempt's log."""
    words = report.log_tail.rstrip().rpartition("\n")[2]
    detail = words.removeprefix(_NOT_STARTED)[:_LONGEST_WORDS] if words.startswith(_NOT_STARTED) else ""
    error = f"the worker refused to start it: {report.cause or 'no cause given'}"
    return f"{error} ({detail})" if detail else error


def _directory_gone(draft: Draft, attempt_id: AttemptId, attempt: Attempt) -> None:
    """What has been there isn't, but its processes may be: it is fenced, never launched into a new directory."""
    if attempt.stop is None:
        started = attempt.started_at is not None
        jobs.stop(draft, attempt_id, EndReason.WORKER_FAILED if started else EndReason.DISPATCH_FAILED)


def _fenced(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> None:
    lease = report.cause == "lease"
    if lease:
        _running(draft, attempt_id, report)  # only what has started has one, whoever heard of it
    attempt = draft.cluster.attempt(attempt_id)
    if attempt.state is AttemptState.STOPPING:
        stopped(draft, attempt_id, report)
    elif attempt.state is AttemptState.ASSIGNED:
        # Fenced by an invocation that died before it could say so: it never started, and never will.
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
