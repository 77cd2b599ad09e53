"""Data of the live screen: jobs by urgency, and only the conspicuous tasks of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from msgspec import Struct

from iris_cli.core import Cluster, JobState, TaskId, WorkerId
from iris_cli.core.lifecycle.display import DisplayWord, task_displays, word_of
from iris_cli.core.model.task import PROGRAM_FAILURES, Attempt, AttemptState, End, EndReason, Task, TaskState
from iris_cli.core.model.waiting import overdue_since
from iris_cli.ops.outcomes.causes import end_words
from iris_cli.ops.outcomes.durations import FRESH
from iris_cli.ops.session import Session
from iris_cli.ops.views.status import ClusterStatus, JobRow, cluster_status, in_reading_order

LATELY = 60.0
"""Seconds for which a changed job precedes the other jobs of the same concern."""

_SLOW = 5.0  # seconds after which a task that is still starting gets a line
_ENDED = 20


class Concern(IntEnum):
    """Urgency of a job for the operator."""

    FAILING = 0
    OVERDUE = 1
    WAITING = 2
    RUNNING = 3
    OVER = 4


class Bunch(Struct, frozen=True, kw_only=True):
    """Conspicuous tasks of one job with the same state and reason. `since_at`: when the last of them changed."""

    tasks: tuple[TaskId, ...]
    state: str
    why: str
    workers: tuple[WorkerId, ...]
    since_at: float | None


class JobOnBoard(Struct, frozen=True, kw_only=True):
    """One job. `waits_since` is set for overdue gangs; `changed_at`: time of its last change."""

    row: JobRow
    concern: Concern
    changed_at: float
    waits_since: float | None
    bunches: tuple[Bunch, ...]


class Board(Struct, frozen=True, kw_only=True):
    """The cluster as of `status.at`, and its jobs in order of urgency."""

    status: ClusterStatus
    jobs: tuple[JobOnBoard, ...]
    gang_reserve_after: float


def board(session: Session, *, labels: Sequence[str] = (), states: Sequence[str] = ()) -> Board:
    """Return the cluster now, with the jobs that `cluster_status` would choose. Raises UsageError."""
    status = cluster_status(session, labels=labels, states=states, ended=_ENDED)
    cluster, patience = session.cluster, session.limits.gang_reserve_after
    jobs = [_on_board(cluster, row, status.at, patience) for row in status.jobs]
    places = {row.id: place for place, row in enumerate(in_reading_order(status.jobs))}
    return Board(
        status=status,
        jobs=tuple(sorted(jobs, key=lambda job: _place(job, places[job.row.id], status.at))),
        gang_reserve_after=patience,
    )


def _on_board(cluster: Cluster, row: JobRow, now: float, patience: float) -> JobOnBoard:
    job, tasks = cluster.jobs[row.id], cluster.tasks_of(row.id)
    displays = task_displays(cluster, row.id)
    bunches = tuple(_bunches(tasks, displays, now)) if not row.state.terminal or row.stopping else ()
    waits = overdue_since(cluster, job, patience, now)
    return JobOnBoard(
        row=row,
        concern=Concern.OVERDUE if waits is not None and not bunches else _concern(row, bunches, now),
        changed_at=_changed_at(row, tasks),
        waits_since=waits,
        bunches=bunches,
    )


def _concern(row: JobRow, bunches: Sequence[Bunch], now: float) -> Concern:
    if row.state in (JobState.FAILED, JobState.UNSCHEDULABLE):
        return Concern.FAILING if row.stopping or now - (row.ended_at or now) < FRESH else Concern.OVER
    if row.state.terminal:  # attempts being stopped still hold their workers
        return Concern.RUNNING if row.stopping else Concern.OVER
    if any(bunch.state != TaskState.ASSIGNED for bunch in bunches):
        return Concern.FAILING
    return Concern.RUNNING if row.display == JobState.RUNNING else Concern.WAITING


def _place(each: JobOnBoard, place: int, now: float) -> tuple[int, float, int]:
    """Return the sort key of a job: by concern, recently changed first, then in table order."""
    lately = each.concern is not Concern.OVER and now - each.changed_at < LATELY
    return each.concern, -each.changed_at if lately else 0.0, place


def _changed_at(row: JobRow, tasks: Sequence[Task]) -> float:
    """Return the time of the last state change of the job or of its tasks."""
    lasts = [task.current for task in tasks if task.current is not None]
    return max(
        row.submitted_at,
        row.ended_at or 0.0,
        *(max(last.assigned_at, last.started_at or 0.0, last.ended_at or 0.0) for last in lasts),
    )


def _bunches(tasks: Sequence[Task], displays: Sequence[str], now: float) -> Iterator[Bunch]:
    """Yield the tasks that failed, are stopping, run again after a failure, or are slow to start."""
    alike: dict[tuple[str, str], list[Task]] = {}
    for task, display in zip(tasks, displays, strict=True):
        if (why := _standing_out(task, now)) is not None:
            alike.setdefault((display, why), []).append(task)
    for (state, why), group in sorted(alike.items(), key=lambda each: _ORDER.index(word_of(each[0][0]))):
        lasts = [task.current for task in group if task.current is not None]
        yield Bunch(
            tasks=tuple(task.id for task in group),
            state=state,
            why=why,
            workers=tuple(last.worker for last in lasts),
            since_at=max(map(_since, lasts), default=None),
        )


def _since(attempt: Attempt) -> float:
    """Return the time at which the attempt entered its present state."""
    if attempt.ended_at is not None:
        return attempt.ended_at
    return attempt.stop.at if attempt.stop is not None else attempt.started_at or attempt.assigned_at


_ORDER: tuple[str, ...] = (
    *(TaskState.FAILED, TaskState.UNSCHEDULABLE, TaskState.WORKER_FAILED, DisplayWord.STOPPING),
    *(DisplayWord.STOPPED, TaskState.KILLED, DisplayWord.RETRYING),
    *(TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING),
)


def _standing_out(task: Task, now: float) -> str | None:
    """Return why a task gets a line; None if it gets none."""
    last, failed = task.current, _failure_before(task)
    if last is not None and last.state is AttemptState.STOPPING:
        return f"being stopped ({last.stop.reason})" if last.stop is not None else ""
    if task.state in (TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE):
        if task.end is not None and task.end.reason is EndReason.SIBLING:
            return None  # it only ended with its gang
        return end_words(task.end) if task.end is not None else ""
    if failed is not None and not task.state.terminal:
        return f"retry after: {end_words(failed)}"
    if task.state is TaskState.ASSIGNED and last is not None and now - last.assigned_at > _SLOW:
        return "received by its worker, not started yet" if last.acknowledged else "dispatching"
    return None


def _failure_before(task: Task) -> End | None:
    """Return the failed end of a task's last ended attempt, or None if that did not fail."""
    for attempt in reversed(task.attempts):
        if attempt.end is not None:
            return attempt.end if attempt.end.reason in PROGRAM_FAILURES else None
    return None
