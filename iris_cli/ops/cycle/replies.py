"""Answers to read-only requests: job status, tasks and endpoints."""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from iris_cli.core import AttemptId, Cluster, Job, JobId, Task, Token, WorkerId
from iris_cli.core.lifecycle.children import visible_job
from iris_cli.core.lifecycle.display import job_display, task_displays
from iris_cli.core.messages import requests as messages
from iris_cli.errors import NotFoundError
from iris_cli.ops.names import unknown_task
from iris_cli.ops.outcomes import causes, durations
from iris_cli.ops.views import failure, job_status

ReadOnly = messages.Status | messages.Tasks | messages.Endpoints


def reply(cluster: Cluster, requester: AttemptId, request: ReadOnly | messages.Wait) -> messages.Answer:
    """Return the answer to a read-only request of a task. Raises NotFoundError for a job that it may not see."""
    fields: Mapping[str, Any] = to_builtins(job_answer(cluster, visible_job(cluster, requester, request.job)))
    if isinstance(request, messages.Tasks | messages.Endpoints):
        name = "tasks" if isinstance(request, messages.Tasks) else "endpoints"
        return {name: fields[name]}
    return fields


def job_answer(cluster: Cluster, job_id: JobId) -> messages.JobAnswer:
    return messages.JobAnswer(
        job=_job(cluster, cluster.jobs[job_id]),
        tasks=list(map(_task, cluster.tasks_of(job_id), task_displays(cluster, job_id))),
        endpoints=list(job_status.endpoint_rows(cluster, job_id)),
    )


def _job(cluster: Cluster, job: Job) -> messages.JobPart:
    return messages.JobPart(
        id=str(job.id),
        state=cluster.job_state(job.id).value,
        display=job_display(cluster, job.id),
        reason=job.end.reason.value if job.end else None,
        why=failure.cause_words(cluster, job),
        replicas=job.replicas,
        submitted_at=job.submitted_at,
        ended_at=job.end.at if job.end else None,
        children=[str(child.id) for child in cluster.children_of(job.id)],
    )


def _task(task: Task, display: str) -> messages.TaskPart:
    attempt = task.current
    end = attempt.end if attempt is not None else None
    return messages.TaskPart(
        id=str(task.id),
        state=task.state.value,
        display=display,
        attempt=attempt.number if attempt is not None else None,
        worker=str(attempt.worker) if attempt is not None else None,
        exit_code=end.exit_code if end else None,
        reason=end.reason.value if end else None,
        why=causes.end_words(task.end) if task.end else causes.end_words(end) if end else "",
        started_at=attempt.started_at if attempt is not None else None,
        ended_at=end.at if end else None,
        duration=durations.attempt_ran(attempt, end.at) if attempt is not None and end else None,
    )


def log_location(cluster: Cluster, requester: AttemptId, request: messages.Logs) -> tuple[WorkerId, Token]:
    """Return the worker and the token of the attempt that wrote a log. Raises NotFoundError if the log was deleted."""
    visible_job(cluster, requester, request.task.job)
    if request.task not in cluster.tasks:
        raise unknown_task(cluster, request.task)
    task = cluster.tasks[request.task]
    attempts = task.attempts
    number = len(attempts) - 1 if request.attempt is None else request.attempt
    if not 0 <= number < len(attempts):
        missing = f"{request.task} has no attempt {max(number, 0)}"
        if task.state.terminal:
            raise NotFoundError(missing, hint=f"the last attempt is {len(attempts) - 1}" if attempts else "")
        raise NotFoundError(f"{missing} yet", hint="ask again later")
    attempt = attempts[number]
    if attempt.reaped_at is not None or attempt.worker not in cluster.workers:
        raise NotFoundError(
            f"the output of {request.task} was removed", hint="limits.reap_after sets how long output is kept"
        )
    return attempt.worker, attempt.token
