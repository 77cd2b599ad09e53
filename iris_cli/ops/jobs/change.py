"""Change open jobs: hold, release, reorder, retry or cancel them."""

from collections.abc import Sequence

from msgspec import Struct, field

from iris_cli.core import AttemptId, AttemptState, Cluster, JobId, Priority, Task, TaskId, check_utf8, clip
from iris_cli.core.lifecycle import jobs, workers
from iris_cli.core.lifecycle.resubmission import resubmit_command
from iris_cli.errors import NotFoundError, UsageError
from iris_cli.ops.cycle.cycle import run, send_stops
from iris_cli.ops.names import EVERY_JOB, JobFilter, find_jobs, find_task
from iris_cli.ops.session import Session

_PAUSE = 1.0  # seconds between two cycles


class Changed(Struct):
    """Result of a change. `unchanged` are jobs that already had the new values."""

    changed: list[JobId]
    unchanged: list[JobId]


def change(
    session: Session,
    names: Sequence[str],
    *,
    held: bool | None = None,
    priority: Priority | None = None,
    scheduling_timeout: float | None = None,
) -> Changed:
    """Change open jobs in one transaction. A value None keeps the job's value. Running tasks continue.

    If a job does not exist (NotFoundError) or has ended (UsageError), no job is changed.
    """
    with session.transaction() as draft:
        found = find_jobs(draft.cluster, list(names))
        for job in found:
            state = draft.cluster.job_state(job)
            if state.terminal:
                raise UsageError(
                    f"{clip(job)} has ended ({state})",
                    hint=resubmit_command(draft.cluster, draft.cluster.jobs[job]),
                )
        changed = [
            job
            for job in found
            if jobs.change(draft, job, held=held, priority=priority, scheduling_timeout=scheduling_timeout)
        ]
    return Changed(changed, [job for job in found if job not in changed])


class Retried(Struct):
    """Result of a retry of `task`, or of the whole job if `task` is None.

    `retried`: attempts that the retry stops. `stopping`: attempts whose end is not proven yet.
    """

    job: JobId
    task: TaskId | None
    retried: list[AttemptId]
    stopping: list[AttemptId]


def retry(session: Session, name: str) -> Retried:
    """Stop the live attempts of a job or a task. For a task of a gang, stop the whole round. Send the stop calls once.

    The tasks are placed again, uncharged, when all these attempts have ended. Raises NotFoundError if `name` is
    unknown. Raises UsageError if the job or the task has ended, or if the job is interactive.
    """
    with session.transaction() as draft:
        job, task = _find_target(draft.cluster, name)
        retried = jobs.retry(draft, job, None if task is None else task.index)
    send_stops(session)
    retried_task = None if task is None or session.cluster.jobs[job].is_gang else task.id
    stopping = [
        attempt_id
        for attempt_id, attempt in session.cluster.live_attempts_of(job)
        if attempt.state is AttemptState.STOPPING and retried_task in (None, attempt_id.task)
    ]
    return Retried(job, retried_task, retried, stopping)


def _find_target(cluster: Cluster, name: str) -> tuple[JobId, Task | None]:
    """Return the open job, and the task if `name` names an open task. Raises NotFoundError, UsageError."""
    job, task = JobId(name), None
    if name not in cluster.jobs:
        task = find_task(cluster, name, "job or task")
        job = task.job
    state = cluster.job_state(job)
    if state.terminal:
        raise UsageError(
            f"{clip(job)} has ended ({state}): `iris retry` needs an open job",
            hint=resubmit_command(cluster, cluster.jobs[job]),
        )
    if cluster.jobs[job].client:
        raise UsageError(
            f"{clip(job)} is an interactive job, which has no retries", hint=f"iris cancel {clip(job)}"
        )
    if task is not None and task.state.terminal:
        raise UsageError(
            f"{clip(task.id)} has ended ({task.state}): `iris retry` needs an open task",
            hint=f"iris why {clip(task.id)}",
        )
    return job, task


class Cancelled(Struct):
    """Result of a cancellation. `stopping`: attempts whose end is not proven."""

    cancelled: list[JobId] = field(default_factory=list)
    already_ended: list[JobId] = field(default_factory=list)
    stopping: list[AttemptId] = field(default_factory=list)


def cancel(
    session: Session,
    names: list[str],
    *,
    prefix: bool = False,
    job_filter: JobFilter = EVERY_JOB,
    reason: str = "",
) -> Cancelled:
    """Cancel the jobs that match `job_filter`, and their child jobs. Then send the stop calls once.

    `names`: jobs to choose from; all open jobs if it is empty. Raises NotFoundError if no job matches.
    """
    check_utf8("--reason", reason)
    result = Cancelled()
    with session.transaction() as draft:
        for job in _choose_jobs(draft.cluster, names, prefix, job_filter):
            has_ended = draft.cluster.job_state(job).terminal
            (result.already_ended if has_ended else result.cancelled).append(job)
        for job in result.cancelled:
            jobs.cancel(draft, job, reason)  # no effect on a child job that has just ended with its parent
    send_stops(session)
    result.stopping = _live_attempts(session.cluster, result.cancelled + result.already_ended)
    return result


def _choose_jobs(cluster: Cluster, names: list[str], prefix: bool, job_filter: JobFilter) -> list[JobId]:
    found = find_jobs(cluster, names, prefix=prefix) if names else [job.id for job in cluster.open_jobs()]
    matching = [job for job in found if job_filter.matches(cluster, cluster.jobs[job])]
    if not matching:
        hint = next(job_filter.unknown_labels(cluster), "`iris status` lists the jobs")
        raise NotFoundError(f"no {'such' if names else 'open'} job matches the --label or --state", hint=hint)
    return matching


def wait_until_stopped(session: Session, result: Cancelled) -> bool:
    """Run cycles until all stopping attempts have ended. Return False if the rest are on unreachable workers."""
    total = len(result.stopping)
    with session.progress(lambda: ("stopping", total - len(result.stopping), total, "task")):
        while result.stopping:
            run(session, schedule=False)
            result.stopping = _live_attempts(session.cluster, result.cancelled + result.already_ended)
            if not result.stopping:
                return True
            if all(_is_unreachable(session, attempt) for attempt in result.stopping):
                return False
            session.clock.sleep(_PAUSE)
    return True


def _live_attempts(cluster: Cluster, jobs: list[JobId]) -> list[AttemptId]:
    """Return the live attempts of these jobs and of their child jobs."""
    prefixes = tuple(f"{job}/" for job in jobs)
    with_children = [job.id for job in cluster.open_jobs() if f"{job.id}/".startswith(prefixes)]
    return [attempt_id for job in with_children for attempt_id, _ in cluster.live_attempts_of(job)]


def _is_unreachable(session: Session, attempt_id: AttemptId) -> bool:
    worker = session.cluster.workers[session.cluster.attempt(attempt_id).worker]
    return worker.quarantined or workers.is_backing_off(
        session.cluster, worker, session.clock.now(), session.limits
    )
