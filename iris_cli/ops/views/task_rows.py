"""Rows of tasks and attempts."""

from msgspec import Struct, field

from iris_cli.core import AttemptId, Cluster, Job, TaskId, WorkerId, format_duration
from iris_cli.core.model.task import Attempt, AttemptState, EndReason, Task, TaskState
from iris_cli.core.model.waiting import describe_quiet_attempt
from iris_cli.core.work_paths import relative_paths
from iris_cli.ops.outcomes import causes, durations
from iris_cli.ops.views.inventory import problem_of
from iris_cli.ops.views.view import View

_LONGEST_LINE = 400  # characters
_NOT_FAILED = frozenset((EndReason.OK, EndReason.CANCELLED))


class AttemptRow(Struct, frozen=True, kw_only=True):
    """One attempt.

    `duration`: seconds for which the user's command ran, by the worker's clock if known; None if it has not started.
    `reason` is the reason of the attempt's end or stop. `presumed`: the attempt was presumed gone, without proof.
    """

    id: AttemptId
    worker: WorkerId
    state: AttemptState
    round: int
    assigned_at: float
    started_at: float | None
    ended_at: float | None
    duration: float | None = field(name="duration_seconds")
    reason: EndReason | None
    exit_code: int | None
    exit: str
    why: str
    trigger: TaskId | None
    presumed: bool


class TaskRow(Struct, frozen=True, kw_only=True):
    """One task. `display` is the task's state as shown on the screen.

    `attempt` is the number of the task's last attempt. `worker`, times, exit code and `reason` belong to this attempt.
    `why` says why the task is pending, or why it ended. For a quiet task, `quiet_since` is the time of its last output,
    and `quiet_in` is the function that its program executed when iris found it quiet.
    """

    id: TaskId
    state: TaskState
    display: str
    worker: WorkerId | None
    why: str
    attempt: int | None
    reason: EndReason | None
    exit_code: int | None
    exit: str
    started_at: float | None
    ended_at: float | None
    duration: float | None = field(name="duration_seconds")
    quiet_since: float | None
    quiet_in: str
    attempts: tuple[AttemptRow, ...]


def task_row(view: View, task: Task, display: str, pending_reason: str) -> TaskRow:
    """Return the row of one task. `pending_reason`: '' if the task is not pending."""
    attempts = tuple(_attempt_row(view, task.id, attempt) for attempt in task.attempts)
    last = attempts[-1] if attempts else None
    reasons = (_why(view, task, last, pending_reason), _problem(view, last), _ghost_words(view.cluster, task))
    return TaskRow(
        id=task.id,
        state=task.state,
        display=display,
        worker=last.worker if last else None,
        why="; ".join(filter(None, reasons)),
        attempt=task.attempts[-1].number if task.attempts else None,
        reason=last.reason if last else None,
        exit_code=last.exit_code if last else None,
        exit=last.exit if last else "",
        started_at=last.started_at if last else None,
        ended_at=last.ended_at if last else None,
        duration=last.duration if last else None,
        quiet_since=task.attempts[-1].quiet_since if task.attempts else None,
        quiet_in=task.attempts[-1].quiet_in if task.attempts else "",
        attempts=attempts,
    )


def culprit_of(cluster: Cluster, job: Job) -> Task | None:
    """Return the task that caused the end of the job, or None."""
    if job.end is None or job.end.trigger is None:
        return None
    return cluster.tasks.get(job.end.trigger)


def last_lines(cluster: Cluster, job: Job) -> tuple[str, ...]:
    """Return the last lines of the task that made the job fail, from the event log; () if it printed nothing.

    Paths below the task's work directory are relative to that directory.
    """
    culprit = culprit_of(cluster, job)
    attempt = culprit.current if culprit is not None else None
    if attempt is None or attempt.end is None or job.end is None or job.end.reason in _NOT_FAILED:
        return ()
    output = relative_paths(attempt.end.log_tail, attempt.token).rstrip()
    return tuple(line[:_LONGEST_LINE] for line in output.split("\n")[-causes.LOG_LINES :]) if output else ()


def waiting_words(view: View, job: Job) -> dict[TaskId, str]:
    pending = [task.id for task in view.cluster.tasks_of(job.id) if task.state is TaskState.PENDING]
    if not pending or job.end is not None:
        return {}
    return {task: view.prospect(job, task) for task in pending}


def _why(view: View, task: Task, last: AttemptRow | None, pending_reason: str) -> str:
    if task.end is not None:
        return causes.task_end_words(task, view.state)
    if last is not None and last.state is AttemptState.STOPPING:
        return last.why
    if task.state is TaskState.PENDING:
        return pending_reason
    if task.state is TaskState.ASSIGNED:
        return assigned_words(view.cluster.jobs[task.job], task.attempts[-1], view.now)
    if last is not None and last.state is AttemptState.ENDED:
        return last.why or "exit 0, waiting for the other ranks"
    return last.why if last is not None else ""


def assigned_words(job: Job, attempt: Attempt, now: float) -> str:
    """Return why an assigned attempt of the job is not running yet."""
    if not attempt.acknowledged:
        return "its worker has not confirmed the start" if attempt.taken_over else "dispatching"
    if not job.has_set_up:
        return "received by its worker, not started yet"
    # The log does not tell which ranks of a gang are set up and wait for the others.
    duration = format_duration(max(0.0, now - attempt.assigned_at))
    return f"the set-up {'of the gang ' if job.is_gang else ''}has run for {duration}"


def _problem(view: View, last: AttemptRow | None) -> str:
    if last is None or last.state is AttemptState.ENDED:
        return ""
    problem = problem_of(view, last.worker)
    return f"worker: {problem}" if problem else ""  # without the worker's id, so that equal rows fold


def _ghost_words(cluster: Cluster, task: Task) -> str:
    """Return a warning about attempts that are presumed gone and may still run, or ''."""
    ghosts = {ghost.attempt for each in cluster.ghosts.values() for ghost in each}
    attempts = (each for each in task.attempts if each.presumed and AttemptId(task.id, each.number) in ghosts)
    return ", ".join(f"attempt-{each.number} may still be running on {each.worker}" for each in attempts)


def _attempt_row(view: View, task: TaskId, attempt: Attempt) -> AttemptRow:
    end, stop = attempt.end, attempt.stop
    return AttemptRow(
        id=AttemptId(task, attempt.number),
        worker=attempt.worker,
        state=attempt.state,
        round=attempt.round,
        assigned_at=attempt.assigned_at,
        started_at=attempt.started_at,
        ended_at=durations.attempt_ended_at(attempt),
        duration=durations.attempt_ran(attempt, view.now),
        reason=end.reason if end else stop.reason if stop else None,
        exit_code=end.exit_code if end else None,
        exit=causes.exit_words(end),
        why=_attempt_words(view, task, attempt),
        trigger=end.trigger if end else stop.trigger if stop else None,
        presumed=attempt.presumed,
    )


def _attempt_words(view: View, task: TaskId, attempt: Attempt) -> str:
    if attempt.end is not None:
        known = causes.known_words(attempt.end, view.state, AttemptId(task, attempt.number))
        return f"{causes.end_words(attempt.end)}{known}"
    if attempt.stop is not None:
        stuck = ", and a process of it can't be killed" if attempt.unkillable else ""
        return f"{causes.stop_words(attempt.stop.reason)}{stuck}"
    return running_words(attempt, view.now)


def running_words(attempt: Attempt, now: float) -> str:
    """Return the problems of a running attempt: that it is orphaned, and for how long it has been quiet; '' if none."""
    wrapper = "orphaned: still running, but its exit code can't be recorded" if attempt.orphaned else ""
    return ", ".join(filter(None, (wrapper, describe_quiet_attempt(attempt, now))))
