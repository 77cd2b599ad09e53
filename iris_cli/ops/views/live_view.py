"""Data of the live screen: jobs by urgency, and the tasks of each job that need attention."""

from collections.abc import Iterator, Sequence
from enum import IntEnum

from msgspec import Struct

from iris_cli.core import Cluster, Job, JobState, TaskId, WorkerId, group_pairs
from iris_cli.core.lifecycle.display import DisplayWord, task_displays, word_of
from iris_cli.core.model.task import PROGRAM_FAILURES, AttemptState, End, EndReason, Task, TaskState
from iris_cli.core.model.waiting import overdue_since
from iris_cli.ops.outcomes import causes, durations
from iris_cli.ops.session import Session
from iris_cli.ops.views.status import ClusterStatus, JobRow, cluster_status, in_display_order
from iris_cli.ops.views.task_rows import assigned_words

_RECENT_CHANGE = 60.0  # seconds; jobs that changed in this time come before other jobs of equal urgency
_SLOW_START = 5.0  # seconds after which a task that is still starting gets a line
_MAX_ENDED_JOBS = 20
_ORDER: tuple[str, ...] = (
    *(TaskState.FAILED, TaskState.UNSCHEDULABLE, TaskState.WORKER_FAILED, DisplayWord.STOPPING),
    *(DisplayWord.STOPPED, TaskState.KILLED, DisplayWord.RETRYING),
    *(TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING),
)


class Urgency(IntEnum):
    """Urgency of a job for the operator, most urgent first."""

    FAILING = 0
    OVERDUE = 1
    WAITING = 2
    RUNNING = 3
    ENDED = 4


class TaskGroup(Struct, frozen=True, kw_only=True):
    """Tasks of one job with the same state and reason. `changed_at`: time of the latest state change of a task."""

    tasks: tuple[TaskId, ...]
    state: str
    why: str
    workers: tuple[WorkerId, ...]
    changed_at: float | None


class LiveJob(Struct, frozen=True, kw_only=True):
    """One job. `changed_at`: time of its last state change. `overdue_since`: None if the job is not overdue."""

    row: JobRow
    urgency: Urgency
    changed_at: float
    overdue_since: float | None
    task_groups: tuple[TaskGroup, ...]


class LiveView(Struct, frozen=True, kw_only=True):
    """The cluster as of `status.at`, and its jobs in order of urgency."""

    status: ClusterStatus
    jobs: tuple[LiveJob, ...]
    gang_reserve_after: float


def live_view(session: Session, *, labels: Sequence[str] = (), states: Sequence[str] = ()) -> LiveView:
    """Return the cluster now, with the jobs that match the filters of `cluster_status`. Raises UsageError."""
    status = cluster_status(session, labels=labels, states=states, ended=_MAX_ENDED_JOBS)
    cluster, now, reserve_after = session.cluster, status.at, session.limits.gang_reserve_after
    jobs = [_live_job(cluster, row, now, reserve_after) for row in in_display_order(status.jobs)]

    def sort_key(job: LiveJob) -> tuple[Urgency, float]:
        is_recent = job.urgency is not Urgency.ENDED and now - job.changed_at < _RECENT_CHANGE
        return job.urgency, -job.changed_at if is_recent else 0.0

    return LiveView(status=status, jobs=tuple(sorted(jobs, key=sort_key)), gang_reserve_after=reserve_after)


def _live_job(cluster: Cluster, row: JobRow, now: float, reserve_after: float) -> LiveJob:
    job, tasks = cluster.jobs[row.id], cluster.tasks_of(row.id)
    groups = _task_groups(job, tasks, task_displays(cluster, row.id), now)
    task_groups = tuple(groups) if not row.state.terminal or row.stopping else ()
    since = overdue_since(cluster, job, reserve_after, now)
    is_overdue = since is not None and not task_groups
    return LiveJob(
        row=row,
        urgency=Urgency.OVERDUE if is_overdue else _urgency(row, task_groups, now),
        changed_at=_changed_at(row, tasks),
        overdue_since=since,
        task_groups=task_groups,
    )


def _urgency(row: JobRow, task_groups: Sequence[TaskGroup], now: float) -> Urgency:
    """Return the urgency of a job that is not overdue."""
    if row.state in (JobState.FAILED, JobState.UNSCHEDULABLE):
        is_recent = now - (row.ended_at or now) < durations.RECENT_FAILURE
        return Urgency.FAILING if row.stopping or is_recent else Urgency.ENDED
    if row.state.terminal:  # attempts that are being stopped still hold resources
        return Urgency.RUNNING if row.stopping else Urgency.ENDED
    if any(group.state != TaskState.ASSIGNED for group in task_groups):
        return Urgency.FAILING
    return Urgency.RUNNING if row.display == JobState.RUNNING else Urgency.WAITING


def _changed_at(row: JobRow, tasks: Sequence[Task]) -> float:
    attempts = [task.current for task in tasks if task.current is not None]
    return max(
        row.submitted_at,
        row.ended_at or 0.0,
        *(max(last.assigned_at, last.started_at or 0.0, last.ended_at or 0.0) for last in attempts),
    )


def _task_groups(job: Job, tasks: Sequence[Task], displays: Sequence[str], now: float) -> Iterator[TaskGroup]:
    """Yield groups of tasks that need attention: failed, stopping, retried after a failure, or slow to start."""
    groups = group_pairs(
        ((display, why), task)
        for task, display in zip(tasks, displays, strict=True)
        if (why := _why_listed(job, task, now)) is not None
    )
    for (state, why), group in sorted(groups.items(), key=lambda each: _ORDER.index(word_of(each[0][0]))):
        attempts = [task.current for task in group if task.current is not None]
        yield TaskGroup(
            tasks=tuple(task.id for task in group),
            state=state,
            why=why,
            workers=tuple(last.worker for last in attempts),
            changed_at=max(map(durations.state_since, attempts), default=None),
        )


def _why_listed(job: Job, task: Task, now: float) -> str | None:
    """Return the reason why a task needs a separate line; None if it needs no line."""
    last, failed = task.current, _failure_before(task)
    if last is not None and last.state is AttemptState.STOPPING:
        return causes.stop_words(last.stop.reason) if last.stop is not None else ""
    if task.state in (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE):
        if task.end is not None and task.end.reason is EndReason.SIBLING:
            return None  # a rank that only ended with its gang needs no line
        return causes.end_words(task.end) if task.end is not None else ""
    if failed is not None and not task.state.terminal:
        running = last is not None and last.end is None
        return f"{'' if running else 'to be retried; '}earlier attempt: {causes.end_words(failed)}"
    if task.state is TaskState.ASSIGNED and last is not None and now - last.assigned_at > _SLOW_START:
        return assigned_words(job, last, now)
    return None


def _failure_before(task: Task) -> End | None:
    """Return the end of the task's last ended attempt if it was a failure, otherwise None."""
    for attempt in reversed(task.attempts):
        if attempt.end is not None:
            return attempt.end if attempt.end.reason in PROGRAM_FAILURES else None
    return None
