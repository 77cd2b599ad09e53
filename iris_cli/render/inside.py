"""Answers to a task, as they are told inside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType, field

from iris_cli.core.ids import JobId
from iris_cli.core.job import JobState
from iris_cli.core.requests import CancelAnswer, EndpointPart, JobAnswer, JobPart, TaskPart
from iris_cli.render.console import Output
from iris_cli.render.waited import WaitedDocument, WaitedJob


class CancelledInside(Struct, frozen=True):
    """The result of `iris cancel` inside a task.

    `over`: jobs that had ended before, and how; null if an older iris answered.
    """

    cancelled: Sequence[JobId]
    over: Mapping[JobId, JobState | None]


class TaskInside(Struct, frozen=True, kw_only=True):
    """A task: the fields of `TaskRow` that are known inside a task. An older iris may omit optional ones."""

    id: str
    state: str
    display: str
    worker: str | None
    why: str
    attempt: int | UnsetType | None = UNSET
    exit_code: int | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET
    started_at: float | UnsetType | None = UNSET
    ended_at: float | UnsetType | None = UNSET
    duration: float | UnsetType | None = field(default=UNSET, name="duration_seconds")


class JobStatusInside(Struct, frozen=True, kw_only=True):
    """The result of `iris status` inside a task: the fields of `iris status JOB` that are known there.

    An older iris may omit optional ones.
    """

    id: str
    state: str
    display: str
    reason: str | UnsetType | None = UNSET
    why: str
    replicas: int | UnsetType = UNSET
    submitted_at: float | UnsetType = UNSET
    ended_at: float | UnsetType | None = UNSET
    children: Sequence[str] | UnsetType = UNSET
    endpoints: Sequence[EndpointPart] | UnsetType = UNSET
    tasks: Sequence[TaskInside]


def status_document(said: JobAnswer) -> JobStatusInside:
    """An answer in the shape of `iris status JOB --json`."""
    job = said.job
    return JobStatusInside(
        id=job.id,
        state=job.state,
        display=_display(job),
        reason=job.reason,
        why=job.why,
        replicas=job.replicas,
        submitted_at=job.submitted,
        ended_at=job.ended,
        children=job.children,
        endpoints=said.endpoints,
        tasks=list(map(_task, said.tasks)),
    )


def _task(task: TaskPart) -> TaskInside:
    return TaskInside(
        id=task.id,
        state=task.state,
        display=_display(task),
        worker=task.worker,
        why=task.why,
        attempt=task.attempt,
        exit_code=task.exit_code,
        reason=task.reason,
        started_at=task.started,
        ended_at=task.ended,
        duration=task.duration,
    )


def show_status(output: Output, said: JobAnswer) -> None:
    """One job, its tasks and where they listen: a line each."""
    if output.as_json:
        output.document(status_document(said))
        return
    job = said.job
    output.line(_joined(job.id, _display(job), job.why))
    for task in said.tasks:
        output.line(_joined(task.id, _display(task), task.worker, task.why))
    for endpoint in () if said.endpoints is UNSET else said.endpoints:
        output.line(_joined(endpoint.task, endpoint.name, f"{endpoint.address}:{endpoint.port}"))


def _display(said: JobPart | TaskPart) -> str:
    """How the state reads; the state itself where an older iris answered."""
    return said.state if said.display is UNSET else said.display


def show_waited(output: Output, found: Mapping[JobId, JobAnswer | None]) -> None:
    """How each job ended; None is one that goes on though the time is over."""
    ended = [
        WaitedJob(job=job, state=JobState(said.job.state), display=said.job.display, reason=said.job.why)
        for job, said in found.items()
        if said is not None
    ]
    if output.as_json:
        output.document(WaitedDocument(ended, timed_out=len(ended) < len(found)))
    else:
        for each in ended:
            reason = f": {each.reason}" if each.reason else ""
            tell = output.done if each.state is JobState.SUCCEEDED else output.failed
            tell(f"{each.job}: {each.state}{reason}")
    left = [job for job, said in found.items() if said is None]
    if left:
        output.warning(f"the time is over and {' '.join(left)} {'goes' if len(left) == 1 else 'go'} on")


def show_cancelled(output: Output, said: Mapping[JobId, CancelAnswer]) -> None:
    """The jobs that were cancelled, and those that had ended before."""
    cancelled = [job for job, answer in said.items() if answer.cancelled]
    over = {
        job: JobState(answer.state) if answer.state else None
        for job, answer in said.items()
        if not answer.cancelled
    }
    if output.as_json:
        output.document(CancelledInside(cancelled, over))
        return
    for job in cancelled:
        output.done(f"cancelled {job}")
    for job, state in over.items():
        output.message(f"{job} was over already" + (f": {state.value}" if state else ""))


def _joined(*words: str | None) -> str:
    return "  ".join(word for word in words if word)
