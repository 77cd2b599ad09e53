"""What the end of an attempt means for its task, its gang and its job: worked out once more from the specification.

Nothing in this module calls the product's decisions. It compares the cluster before a transaction with the cluster
after it, and reports each decision that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iris_cli.core.events.events import (
    AttemptEnded,
    AttemptEvent,
    AttemptStopped,
    GangRoundEnded,
    TaskDispatchFailed,
    Transaction,
)
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, JobState
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, End, EndReason, Task, TaskState
from iris_cli.core.model.worker import WorkerCondition

R = EndReason
T = TaskState

PROGRAM = frozenset({R.USER_ERROR, R.OOM, R.SIGNAL, R.SETUP_FAILED})
HOST = frozenset({R.WORKER_FAILED, R.PREEMPTED})
_ORDERED = frozenset({R.SIBLING, R.CANCELLED, R.JOB_ENDED})
_ENDS = (AttemptEnded, AttemptStopped, TaskDispatchFailed)


class Verdicts:
    """Judges the decisions of each transaction. `asked_by`: the workers that an invocation polls at this moment."""

    def __init__(
        self, breach: Callable[[str], None], limits: Limits, asked_by: Callable[[str], set[WorkerId]]
    ) -> None:
        self._breach = breach
        self._limits = limits
        self._asked_by = asked_by

    def judge(self, transaction: Transaction, before: Cluster, after: Cluster, who: str) -> None:
        """Report every decision of a transaction that differs from the specification."""
        for event in transaction.events:
            if isinstance(event, _ENDS):
                self._attempt(event, before, after)
            elif isinstance(event, GangRoundEnded):
                self._round(event, transaction.at, before, after, who)
        for job in after.jobs.values():
            if job is not before.jobs.get(job.id) or any(
                task is not before.tasks.get(task.id) for task in after.tasks_of(job.id)
            ):
                self._job(job, before, after)

    def _attempt(self, event: AttemptEvent, before: Cluster, after: Cluster) -> None:
        """A single task follows the table of retries when its attempt has ended."""
        was, task = before.tasks[event.task], after.tasks[event.task]
        job, attempt = after.jobs[event.task.job], after.attempt(event.attempt_id)
        if was.state.terminal:
            if task.state is not was.state:
                self._breach(f"{task.id} was {was.state}, and is {task.state}")
            return
        if job.is_gang:
            return
        end = attempt.end
        assert end is not None
        follows = _follows(job, was, attempt, end.reason)
        goes_on = not task.state.terminal
        ended_with_its_job = task.state is T.KILLED and job.end is not None
        if not ended_with_its_job and (task.state is not follows if follows else not goes_on):
            expected = follows or "to be placed again"
            self._breach(
                f"{event.attempt_id} ended as {end.reason}: {task.id} is {task.state}, not {expected}"
            )
        if goes_on:
            self._charge(event.attempt_id, was, task, end.reason)

    def _charge(self, attempt: AttemptId, was: Task, task: Task, reason: EndReason) -> None:
        charged = task.failures - was.failures, task.preemptions - was.preemptions
        due = int(reason in PROGRAM), int(reason in HOST)
        if charged != due:
            self._breach(
                f"{attempt} ended as {reason}: charged {charged} failures and preemptions, not {due}"
            )

    def _round(self, event: GangRoundEnded, at: float, before: Cluster, after: Cluster, who: str) -> None:
        """The verdict on a round follows from all of its ends: a lost host first, then the earliest exit."""
        job, was = after.jobs[event.job], before.jobs[event.job]
        ranks = [
            (task, attempt)
            for task in after.tasks_of(job.id)
            for attempt in task.attempts
            if attempt.round == event.round
        ]
        evidence = sorted(_evidence(ranks))
        if not evidence:
            self._breach(f"{job.id}: round {event.round} ends, but no rank of it has ended badly")
            return
        _, _, index, reason = evidence[0]
        if event.trigger is None or (event.reason, event.trigger.index) != (reason, index):
            self._breach(
                f"{job.id}: {event.reason} of {event.trigger} ends the round, not {reason} of {index}"
            )
        if reason not in (R.DISPATCH_FAILED, R.RETRIED) and reason not in HOST:
            self._waited(event, at, ranks, after, who)
        refused = reason is R.DISPATCH_FAILED and any(attempt.refused for _, attempt in ranks)
        due = (
            was.failed_rounds + (reason in PROGRAM),
            was.preempted_rounds + (reason in HOST),
            was.refused_rounds + refused if reason is R.DISPATCH_FAILED else 0,
        )
        if (job.failed_rounds, job.preempted_rounds, job.refused_rounds) != due:
            counted = job.failed_rounds, job.preempted_rounds, job.refused_rounds
            self._breach(
                f"{job.id}: {reason} counted as {counted} failed, preempted and refused rounds, not {due}"
            )
        goes_on = (
            reason is R.RETRIED
            or (reason in PROGRAM and due[0] <= job.max_retries_failure)
            or (reason in HOST and due[1] <= job.max_retries_preemption)
            or (reason is R.DISPATCH_FAILED and due[2] < job.max_dispatch_failures)
        )
        if goes_on != (job.end is None) and not job.cancelled:
            self._breach(f"{job.id}: round {event.round} ended as {reason} {due}, but its end is {job.end}")
        if not goes_on and job.end is not None and job.end.reason is not reason and not job.cancelled:
            self._breach(f"{job.id} ended as {job.end.reason}, and its round as {reason}")

    def _waited(
        self,
        event: GangRoundEnded,
        at: float,
        ranks: list[tuple[Task, Attempt]],
        after: Cluster,
        who: str,
    ) -> None:
        """No exit code is blamed while the host of another rank may still say that it was lost."""
        spoiled = [
            attempt.ended_at for _, attempt in ranks if attempt.ended_at is not None and _spoils(attempt)
        ]
        waits = 0 <= at - min(spoiled) < self._limits.settle_seconds
        for task, attempt in ranks:
            worker = after.workers.get(attempt.worker)
            if not attempt.live or worker is None:
                continue
            if waits and worker.condition is not WorkerCondition.HEALTHY:
                self._breach(
                    f"{event.job}: {event.reason} is blamed while {worker.id} of {task.id} is silent"
                )
            if worker.id in self._asked_by(who):
                self._breach(
                    f"{event.job}: {event.reason} is blamed while {who} polls {worker.id} of {task.id}"
                )

    def _job(self, job: Job, before: Cluster, after: Cluster) -> None:
        tasks = after.tasks_of(job.id)
        due = state_of(job, [T.PENDING if _follows_the_job(task) else task.state for task in tasks])
        if due.terminal != (job.end is not None):
            self._breach(f"{job.id} is {due} by its tasks, but its end is {job.end}")
        if job.end is None:
            return
        was = before.jobs.get(job.id)
        if was is not None and was.end is not None and was.end != job.end:
            self._breach(f"{job.id} had ended as {was.end.reason}, and now as {job.end.reason}")
        open_tasks = [str(task.id) for task in after.tasks_of(job.id) if not task.state.terminal]
        if open_tasks:
            self._breach(f"{job.id} has ended, and {', '.join(open_tasks)} go on")
        if job.end.reason not in _reasons_of(job, due, after):
            self._breach(f"{job.id} is {due}, but the reason of its end is {job.end.reason}")


def _follows(job: Job, was: Task, attempt: Attempt, reason: EndReason) -> TaskState | None:
    """The state that a single task ends in, None if it is placed again. `was`: before the end of its attempt."""
    if reason is R.OK:
        return T.SUCCEEDED
    if reason in PROGRAM:
        return None if was.failures < job.max_retries_failure else T.FAILED
    if reason in HOST:
        return None if was.preemptions < job.max_retries_preemption else T.WORKER_FAILED
    if reason is R.RETRIED:
        return None
    if reason is R.DISPATCH_FAILED:
        refusals = was.refusals + attempt.refused
        return T.FAILED if attempt.refused and refusals >= job.max_dispatch_failures else None
    return T.FAILED  # a time limit is never retried


def _follows_the_job(task: Task) -> bool:
    """Whether a task is over because its job is: that does not end the job."""
    return task.state is T.KILLED and task.end is not None and task.end.reason is R.JOB_ENDED


def _spoils(attempt: Attempt) -> End | None:
    """How an attempt spoiled its round: by its end, or by the fault that it was stopped for."""
    end, stop = attempt.end, attempt.stop
    if end is None or (end.reason is not R.OK and end.reason not in _ORDERED):
        return end
    by_fault = stop is not None and stop.reason is not R.OK and stop.reason not in _ORDERED
    return End(reason=stop.reason, at=end.at) if stop is not None and by_fault else None


def _evidence(ranks: list[tuple[Task, Attempt]]) -> Iterator[tuple[int, float, int, EndReason]]:
    for task, attempt in ranks:
        end = _spoils(attempt)
        if end is not None:
            weight = 0 if end.reason in HOST else 2 if end.reason is R.DISPATCH_FAILED else 1
            yield weight, end.at, task.index, end.reason


def state_of(job: Job, states: list[TaskState]) -> JobState:
    """The state of a job by the states of its tasks: the first rule of the specification that holds."""
    over = all(state.terminal for state in states)
    may_end = over or not job.keep_going
    if may_end and T.UNSCHEDULABLE in states:
        return JobState.UNSCHEDULABLE
    if job.cancelled:
        return JobState.KILLED
    failed = states.count(T.FAILED)
    if (may_end and failed > job.max_task_failures) or (job.is_gang and T.WORKER_FAILED in states):
        return JobState.FAILED
    if not over:
        return JobState.PENDING
    return JobState.SUCCEEDED if failed + states.count(T.SUCCEEDED) == len(states) else JobState.FAILED


def _reasons_of(job: Job, state: JobState, after: Cluster) -> set[EndReason]:
    """The reasons that the end of a job in this state may have."""
    if state is JobState.SUCCEEDED:
        return {R.OK}
    if state is JobState.KILLED:
        return {R.CANCELLED}
    tasks = after.tasks_of(job.id)
    failed = [task for task in tasks if task.state is T.FAILED]
    to_blame = {T.UNSCHEDULABLE} if state is JobState.UNSCHEDULABLE else {T.FAILED, T.WORKER_FAILED}
    if state is JobState.FAILED and not job.is_gang:  # tolerated failures are not to blame
        to_blame = {T.FAILED} if len(failed) > job.max_task_failures else {T.WORKER_FAILED}
    return {task.end.reason for task in tasks if task.end and task.state in to_blame} - {R.SIBLING}
