"""Answers to requests that only read: how a job stands, what its tasks are and where they listen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import AttemptId, JobId, Token, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.lifecycle.children import visible
from iris_cli.core.lifecycle.display import job_display, task_displays
from iris_cli.core.requests import Answer, Endpoints, Logs, Status, Tasks, Wait
from iris_cli.core.task import Task
from iris_cli.errors import NotFoundError
from iris_cli.ops.causes import end_words
from iris_cli.ops.durations import attempt_ran
from iris_cli.ops.failure import cause_words
from iris_cli.ops.job_status import endpoint_rows

Reading = Status | Tasks | Endpoints


class Place(Struct, frozen=True):
    """Where a piece of a log is to be had."""

    worker: WorkerId
    token: Token


def reply(cluster: Cluster, asker: AttemptId, request: Reading | Wait) -> Answer:
    """What the state says. Raises NotFoundError for a job that the task may not see."""
    job = visible(cluster, asker, request.job)
    if isinstance(request, Tasks):
        return {"tasks": _tasks(cluster, job)}
    if isinstance(request, Endpoints):
        return {"endpoints": _endpoints(cluster, job)}
    return job_reply(cluster, job)


def job_reply(cluster: Cluster, job_id: JobId) -> Mapping[str, Any]:
    """A job with its tasks and their endpoints. Times are seconds since the epoch by the operator's clock."""
    job = cluster.jobs[job_id]
    return {
        "job": _job(cluster, job),
        "tasks": _tasks(cluster, job_id),
        "endpoints": _endpoints(cluster, job_id),
    }


def _job(cluster: Cluster, job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": cluster.job_state(job.id).value,
        "display": job_display(cluster, job.id),
        "reason": job.end.reason.value if job.end else None,
        "why": cause_words(cluster, job),
        "replicas": job.replicas,
        "submitted_at": job.submitted_at,
        "ended_at": job.end.at if job.end else None,
        "children": [child.id for child in cluster.children_of(job.id)],
    }


def _tasks(cluster: Cluster, job: JobId) -> list[dict[str, Any]]:
    return [
        _task(task, display)
        for task, display in zip(cluster.tasks_of(job), task_displays(cluster, job), strict=True)
    ]


def _task(task: Task, display: str) -> dict[str, Any]:
    attempt = task.current
    end = attempt.end if attempt is not None else None
    started_at = attempt.started_at if attempt is not None else None
    return {
        "id": str(task.id),
        "state": task.state.value,
        "display": display,
        "attempt": attempt.number if attempt is not None else None,
        "worker": attempt.worker if attempt is not None else None,
        "exit_code": end.exit_code if end else None,
        "reason": end.reason.value if end else None,
        "why": end_words(task.end) if task.end else end_words(end) if end else "",
        "started_at": started_at,
        "ended_at": end.at if end else None,
        "duration": attempt_ran(attempt, end.at) if attempt is not None and end else None,
    }


def _endpoints(cluster: Cluster, job: JobId) -> list[dict[str, Any]]:
    return [
        {
            "task": str(row.task),
            "name": row.name,
            "address": row.address,
            "port": row.port,
            "metadata": dict(row.metadata),
        }
        for row in endpoint_rows(cluster, job)
    ]


def place_of_log(cluster: Cluster, asker: AttemptId, request: Logs) -> Place:
    """Where to read what a task wrote. Raises NotFoundError where there is nothing to be had."""
    job = visible(cluster, asker, request.task.job)
    if request.task not in cluster.tasks:
        last = cluster.jobs[job].replicas - 1
        raise NotFoundError(f"{job} has no task-{request.task.index}", hint=f"its last one is task-{last}")
    attempts = cluster.tasks[request.task].attempts
    number = len(attempts) - 1 if request.attempt is None else request.attempt
    if not 0 <= number < len(attempts):
        raise NotFoundError(f"{request.task} has no attempt {max(number, 0)} yet", hint="ask again later")
    attempt = attempts[number]
    if attempt.reaped_at is not None or attempt.worker not in cluster.workers:
        raise NotFoundError(
            f"what {request.task} wrote is no longer there", hint="output stays for some days only"
        )
    return Place(attempt.worker, attempt.token)
