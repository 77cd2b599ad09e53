"""Manual retry: stop a job's live attempts, so that its tasks are placed again, uncharged."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core import AttemptId, AttemptState, Cluster, JobId, Task, TaskId, clip
from iris_cli.core.ids import is_attempt_name
from iris_cli.core.lifecycle import jobs
from iris_cli.core.lifecycle.resubmission import resubmit_command
from iris_cli.errors import UsageError
from iris_cli.ops.cycle.cycle import send_stops
from iris_cli.ops.names import select_tasks, unknown_name
from iris_cli.ops.session import Session


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
        if is_attempt_name(name):
            raise unknown_name(cluster, name, "job or task")
        ((task, _),) = select_tasks(cluster, name)
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
