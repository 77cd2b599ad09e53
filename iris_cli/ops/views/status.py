"""Data of `iris status`: the cluster with its jobs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from msgspec import Struct, field

from iris_cli.core import Cluster, Job, JobId, JobState, Priority, WorkerId, depth_of, root_of, state_of
from iris_cli.core.decorators import gc_paused
from iris_cli.core.lifecycle.display import (
    DisplayWord,
    count_displays,
    display_of,
    displays_of,
    live_attempts,
    word_of,
)
from iris_cli.core.model.task import Assigned, Attempt, Ended, EndReason, Stopping, Task, TaskState
from iris_cli.core.model.waiting import describe_hold, describe_overdue, describe_quiet_tasks
from iris_cli.ops.names import job_filter
from iris_cli.ops.outcomes import causes, durations
from iris_cli.ops.session import Session
from iris_cli.ops.views.inventory import SliceRow, WorkerRow, slice_rows, worker_rows
from iris_cli.ops.views.scaling_rows import NO_SCALING, Scaling
from iris_cli.ops.views.task_rows import assigned_words, culprit_of
from iris_cli.ops.views.view import CycleAge, View, ViewResult, load_view

_PENDING = TaskState.PENDING
_DISPLAY_ORDER: tuple[str, ...] = (
    *(JobState.RUNNING, DisplayWord.STOPPING, DisplayWord.RETRYING, JobState.PENDING),
)


class JobRow(Struct, frozen=True, kw_only=True):
    """One job in one line. Ages and durations are in seconds.

    `display` is the state shown on the screen. `task_displays` counts the tasks by the state shown on the screen.
    `workers` are the workers of the job's live attempts, by rank. `stopping` is the number of attempts that are being
    stopped. `why` says why the job is pending, not running yet, stopping or held, or why it ended. `retry` is the
    failure that is being retried. `overdue` says how long a gang has been pending, if longer than `gang_reserve_after`.
    `quiet` names the quiet tasks. `duration` is the time in which tasks of the job ran, or null. `again` is the ended
    job from which this job was resubmitted. `tried_again` are the jobs resubmitted from this job.
    """

    OMITTED: ClassVar = ("order",)
    id: JobId
    state: JobState
    display: str
    tasks: Mapping[TaskState, int]
    task_displays: Mapping[str, int]
    replicas: int
    gang: bool
    workers: tuple[WorkerId, ...]
    stopping: int
    why: str
    retry: str
    overdue: str
    quiet: str
    reason: EndReason | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    age: float = field(name="age_seconds")
    duration: float | None = field(name="duration_seconds")
    priority: Priority
    labels: Mapping[str, str]
    again: JobId | None
    tried_again: tuple[JobId, ...]
    order: tuple[float, ...]  # sort key for the screen

    @property
    def only_stops(self) -> bool:
        """True if the job has live attempts, and all of them are being stopped."""
        return 0 < self.stopping == len(self.workers)


class ClusterStatus(ViewResult, frozen=True, kw_only=True):
    """Overview of the cluster as of `at`.

    `jobs` are the open jobs and the jobs that ended last. `older` is the number of ended jobs that are omitted.
    """

    OMITTED: ClassVar = ("more_open",)
    name: str
    past: bool
    cycle: CycleAge | None
    jobs: tuple[JobRow, ...]
    more_open: int  # number of open jobs that are omitted
    older: int
    slices: tuple[SliceRow, ...]
    workers: tuple[WorkerRow, ...]
    scaling: Scaling = NO_SCALING


@gc_paused
def cluster_status(
    session: Session,
    *,
    at: str | None = None,
    labels: Sequence[str] = (),
    states: Sequence[str] = (),
    opened: int | None = None,
    ended: int | None = None,
) -> ClusterStatus:
    """Return the cluster now, or as of `at`, with the jobs that have all `labels` and one of `states`.

    A label is `key=value`, or `key` for any value. `opened` is the maximum number of open jobs (None: all), of which
    the first in display order are returned. `ended` is the maximum number of ended jobs (None: all). It is ignored if
    labels or states are given. Raises UsageError.
    """
    accepts = job_filter(labels, states)
    view = load_view(session, at)
    workers = worker_rows(view)
    jobs = _jobs(view.cluster, None if accepts else ended)
    chosen = [job for job in jobs if accepts.matches(view.cluster, job)]
    unknown_labels = accepts.unknown_labels(view.cluster) if not chosen else ()
    scaling, notes = _scaling(session, view)
    messages = (*view.messages, *unknown_labels, *_other_directory(session, view), *notes)
    outlines = [outline_of(view.cluster, job) for job in chosen]
    shown = outlines if opened is None else _limit_open_jobs(outlines, opened)
    return ClusterStatus(
        **{**view.result_fields, "messages": messages},
        name=view.cluster.name or session.config.name,
        past=view.cycle is None,
        cycle=view.cycle,
        jobs=tuple(job_row(view, outline) for outline in shown),
        more_open=len(chosen) - len(shown),
        older=0 if accepts else len(view.cluster.jobs) - len(chosen),
        slices=slice_rows(view, workers),
        workers=workers,
        scaling=scaling,
    )


def _scaling(session: Session, view: View) -> tuple[Scaling, Sequence[str]]:
    """Return the state of the scale groups, what an autoscaler pass would create now, and who runs that pass."""
    if not session.config.scale_groups and not view.cluster.slices:
        return NO_SCALING, ()
    from iris_cli.ops.views.scale_status import plan_of, scaling_rows, who_creates

    plan = plan_of(session, view.cluster, view.now)
    notes = who_creates(session, view.cluster, plan) if view.cycle is not None else ()
    return scaling_rows(view.cluster, plan, view.now), notes


def _other_directory(session: Session, view: View) -> Iterator[str]:
    if view.cycle is None or view.cluster.slice_owner is None or not session.config.scale_groups:
        return
    from iris_cli.ops.views.scale_status import owner_conflict

    if (found := owner_conflict(session)) is not None:
        yield f"no slices are created or deleted: {found}"


def _jobs(cluster: Cluster, ended: int | None) -> list[Job]:
    """Return the open jobs and the `ended` jobs that ended last, in order of submission."""
    if ended is None:
        return list(cluster.jobs.values())
    found = {job.id: job for job in (*cluster.open_jobs(), *cluster.last_ended(ended))}
    return sorted(found.values(), key=lambda job: job.order)


class Outline(NamedTuple):
    """The facts that decide where on the screen a job is. `order` is the sort key.

    `placed` are the tasks that have attempts, `live` are the live attempts.
    """

    job: Job
    tasks: Sequence[Task]
    placed: Sequence[Task]
    live: Sequence[Attempt]
    state: JobState
    display: str
    order: tuple[float, ...]


def outline_of(cluster: Cluster, job: Job) -> Outline:
    tasks = cluster.tasks_of(job.id)
    placed = [task for task in tasks if task.attempts]
    live = live_attempts(placed)
    state = state_of(job, tasks)
    display = display_of(job, tasks, state, live)
    word = word_of(display)
    order: tuple[float, ...]
    if state.terminal:
        order = len(_DISPLAY_ORDER), -(job.end.at if job.end is not None else 0.0), job.order
    elif word != JobState.PENDING:
        order = _DISPLAY_ORDER.index(word), job.order
    else:
        root = cluster.jobs.get(root_of(job.id), job)
        queue_key = job.priority.rank, -depth_of(job.id), root.order, job.order
        order = _DISPLAY_ORDER.index(word), not live, *queue_key
    return Outline(job, tasks, placed, live, state, display, order)


def _limit_open_jobs(outlines: list[Outline], limit: int) -> list[Outline]:
    """Return the jobs in the same order, without all but the first `limit` open jobs in display order."""
    still_open = [each for each in outlines if not each.state.terminal]
    hidden = {each.job.id for each in sorted(still_open, key=lambda each: each.order)[limit:]}
    return [each for each in outlines if each.job.id not in hidden]


def in_display_order(jobs: Sequence[JobRow]) -> list[JobRow]:
    """Return the jobs of a cluster in display order.

    Open jobs come first: running, stopping, retrying, starting, then pending in scheduling order. Ended jobs follow,
    latest end first.
    """
    return sorted(jobs, key=lambda job: job.order)


def job_row(view: View, outline: Outline) -> JobRow:
    job, tasks, placed, live, state, display, order = outline
    counts = Counter([task.state for task in tasks])
    return JobRow(
        id=job.id,
        state=state,
        display=display,
        tasks={state: counts[state] for state in TaskState if state in counts},
        task_displays=count_displays(displays_of(job, tasks)),
        replicas=job.replicas,
        gang=job.is_gang,
        workers=tuple([attempt.worker for attempt in live]),
        stopping=sum(type(attempt.phase) is Stopping for attempt in live),
        why=_why(view, job, tasks, live),
        retry=_retry(view, job, placed),
        overdue=describe_overdue(view.cluster, job, view.limits.gang_reserve_after, view.now),
        quiet=describe_quiet_tasks(job, tasks, view.now) if any(each.quiet_since for each in live) else "",
        reason=job.end.reason if job.end else None,
        submitted_at=job.submitted_at,
        started_at=durations.first_start(placed),
        ended_at=job.end.at if job.end else None,
        age=durations.elapsed(job.submitted_at, None, view.now) or 0.0,
        duration=durations.job_ran(job, placed, view.now),
        priority=job.priority,
        labels=dict(job.labels),
        again=job.again,
        tried_again=job.tried_again,
        order=order,
    )


def _retry(view: View, job: Job, placed: Sequence[Task]) -> str:
    attempts = (task.attempts for task in placed)
    if job.end is not None or not any(len(each) > 1 or type(each[-1].phase) is Ended for each in attempts):
        return ""
    return causes.retry_words(view.cluster, job, view.state)


def _why(view: View, job: Job, tasks: Sequence[Task], live: Sequence[Attempt]) -> str:
    if job.end is not None and culprit_of(view.cluster, job) is None:
        return causes.job_cause(job, None)
    if job.end is not None:
        from iris_cli.ops.views.failure import cause_words

        return cause_words(view.cluster, job, view.state)
    words = view.prospects(job, [task.id for task in tasks if task.state is _PENDING])
    first, number = next(iter(words.items()), (_why_not_pending(view, job, tasks, live), 0))
    if len(words) < 2:
        return first
    return f"{number} of {sum(words.values())} pending tasks: {first} (others: iris why {job.id})"


def _why_not_pending(view: View, job: Job, tasks: Sequence[Task], live: Sequence[Attempt]) -> str:
    """Return that a job without pending tasks is held, or why its attempts are being stopped or don't run yet."""
    if any(type(attempt.phase) is Stopping for attempt in live):
        return describe_hold(job) or causes.stop_cause(job, tasks)
    if not live or any(type(attempt.phase) is not Assigned for attempt in live):
        return describe_hold(job)
    first = min(live, key=lambda attempt: attempt.assigned_at)
    words = assigned_words(job, first, view.now)
    if any(assigned_words(job, attempt, view.now) != words for attempt in live):
        index = next(task.index for task in tasks if task.current is first)
        words = f"{'rank' if job.is_gang else 'task'} {index}: {words}"
    return describe_hold(job) or words
