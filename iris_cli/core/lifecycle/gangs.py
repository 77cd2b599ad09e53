"""Decide the rounds of gangs: the placements of all ranks. A gang is placed, stopped and retried only as a whole."""

from collections.abc import Container

from iris_cli.core import AttemptState, Cluster, EndReason, Job, JobId, Limits, WorkerCondition, WorkerId
from iris_cli.core.events.events import GangRoundEnded, TaskEnded, TaskRequeued
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import jobs
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, Attempt, End, Task, TaskState

_CONSEQUENCES = frozenset({EndReason.SIBLING, EndReason.CANCELLED, EndReason.JOB_ENDED})
"""Reasons for which iris stops attempts. They are never the cause of a round's end."""


def decide_round(draft: Draft, job_id: JobId, limits: Limits, unanswered: Container[WorkerId] = ()) -> None:
    """Decide the current round of a gang from the ends recorded so far.

    iris stops a round as soon as the round can't succeed any more. The verdict waits until the evidence is complete.
    `unanswered` are the workers that have not answered the current poll yet.
    """
    job = draft.cluster.jobs[job_id]
    if job.end is not None or job.rounds == job.settled_rounds:
        return None
    _stop_late_ranks(draft, job)
    members = _members(draft, job_id)
    if all(attempt.end is not None and attempt.end.reason is EndReason.OK for _, attempt in members):
        return _end_succeeded(draft, members)
    evidence = sorted(
        ((task, end) for task, attempt in members if (end := _failing_end(attempt)) is not None),
        key=_blame_order,
    )
    doomed = [task for task, attempt in members if attempt.stop and _fails_round(attempt.stop.reason)]
    causes = [task for task, _ in evidence] or doomed
    if not causes:
        return None
    jobs.stop_live_attempts(draft, job_id, EndReason.SIBLING, causes[0].id)
    if evidence and not _evidence_may_come(draft, members, evidence[0][1], limits, unanswered):
        _record_verdict(draft, job, *evidence[0])
    return None


def _members(draft: Draft, job: JobId) -> list[tuple[Task, Attempt]]:
    return [(task, task.attempts[-1]) for task in draft.cluster.tasks_of(job)]


def _stop_late_ranks(draft: Draft, job: Job) -> None:
    """Stop ranks whose set-up takes too long and whose worker is not healthy, if no rank has started."""
    members = _members(draft, job.id)
    if any(attempt.started_at is not None for _, attempt in members):
        return
    for task, attempt in members:
        is_assigned = attempt.state is AttemptState.ASSIGNED
        is_late = is_assigned and 0 < job.setup_timeout < draft.at - attempt.assigned_at
        if is_late and _has_unhealthy_worker(draft.cluster, attempt):
            jobs.stop(draft, task.current_id, EndReason.DISPATCH_FAILED)


def _end_succeeded(draft: Draft, members: list[tuple[Task, Attempt]]) -> None:
    for task, attempt in members:
        assert attempt.end is not None
        draft.record(TaskEnded(task=task.id, state=TaskState.SUCCEEDED, end=attempt.end.without_details()))
    jobs.end_if_decided(draft, members[0][0].job)


def _fails_round(reason: EndReason) -> bool:
    return reason is not EndReason.OK and reason not in _CONSEQUENCES


def _failing_end(attempt: Attempt) -> End | None:
    """Return the attempt's end if it prevents the round's success, otherwise None.

    If the reason of the rank's stop fails the round, the returned end has this reason.
    """
    end, stop = attempt.end, attempt.stop
    if end is None or _fails_round(end.reason):
        return end
    if stop is None or not _fails_round(stop.reason):
        return None
    return end.with_cause(stop.reason, end.at, end.trigger)


def _blame_order(item: tuple[Task, End]) -> tuple[int, float, int]:
    """Return a sort key for the trigger: first lost hosts, because siblings of a lost rank fail, too; then by time."""
    task, end = item
    kind = 0 if end.reason in INFRASTRUCTURE else 2 if end.reason is EndReason.DISPATCH_FAILED else 1
    return kind, end.at, task.index


def _evidence_may_come(
    draft: Draft,
    members: list[tuple[Task, Attempt]],
    worst: End,
    limits: Limits,
    unanswered: Container[WorkerId],
) -> bool:
    """Return whether a worker may still report an end that would be the trigger instead of `worst`."""
    if worst.reason in (EndReason.DISPATCH_FAILED, EndReason.RETRIED):
        return False  # nothing is charged, so no more evidence is needed
    if any(attempt.live and attempt.worker in unanswered for _, attempt in members):
        return True  # regardless of the last poll's age, because the current poll ends soon
    recorded = [
        attempt.ended_at
        for _, attempt in members
        if attempt.ended_at is not None and _failing_end(attempt) is not None
    ]
    if not 0 <= draft.at - min(recorded) < limits.settle_seconds:
        return False  # also after the clock was set back, because the verdict must not wait forever
    return any(
        attempt.live
        and (
            _has_unhealthy_worker(draft.cluster, attempt)
            or (attempt.stop is not None and attempt.stop.reason in INFRASTRUCTURE)
        )
        for _, attempt in members
    )


def _has_unhealthy_worker(cluster: Cluster, attempt: Attempt) -> bool:
    return cluster.workers[attempt.worker].condition is not WorkerCondition.HEALTHY


def _record_verdict(draft: Draft, job: Job, trigger: Task, end: End) -> None:
    refused = end.reason is EndReason.DISPATCH_FAILED and any(
        task.attempts[-1].refused for task in draft.cluster.tasks_of(job.id)
    )
    draft.record(
        GangRoundEnded(
            job=job.id, round=job.rounds - 1, reason=end.reason, trigger=trigger.id, refused=refused
        )
    )
    if _may_retry_round(draft.cluster.jobs[job.id], end.reason):
        for task in draft.cluster.tasks_of(job.id):
            draft.record(TaskRequeued(task=task.id, reason=end.reason))
        return
    _end_gang(draft, job, trigger, end)


def _may_retry_round(job: Job, reason: EndReason) -> bool:
    """Return whether the retry budget allows another round after the round that was just charged."""
    if reason in INFRASTRUCTURE:
        return job.preempted_rounds <= job.max_retries_preemption
    if reason in PROGRAM_FAILURES:
        return job.failed_rounds <= job.max_retries_failure
    if reason is EndReason.DISPATCH_FAILED:
        return job.refused_rounds < job.max_dispatch_failures
    return reason is EndReason.RETRIED  # a time limit is never retried


def _end_gang(draft: Draft, job: Job, trigger: Task, end: End) -> None:
    state = TaskState.WORKER_FAILED if end.reason in INFRASTRUCTURE else TaskState.FAILED
    draft.record(TaskEnded(task=trigger.id, state=state, end=end.without_details()))
    error = f"Coscheduled sibling {trigger.id} failed"
    sibling = End(reason=EndReason.SIBLING, at=draft.at, trigger=trigger.id, error=error)
    for task in draft.cluster.tasks_of(job.id):
        if task.id != trigger.id:
            draft.record(TaskEnded(task=task.id, state=TaskState.WORKER_FAILED, end=sibling))
    jobs.end_if_decided(draft, job.id)
