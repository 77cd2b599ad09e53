"""Answers to a task, as they are told inside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct

from iris_cli.core.ids import JobId
from iris_cli.core.messages.requests import CancelAnswer, JobAnswer, JobPart, TaskPart
from iris_cli.core.model.job import JobState
from iris_cli.render.console import Output
from iris_cli.render.jobs.waited import WaitedDocument, WaitedJob


class CancelledInside(Struct, frozen=True):
    """The result of `iris cancel` inside a task.

    `over`: jobs that had ended before, and how; null if an older iris answered.
    """

    cancelled: Sequence[JobId]
    over: Mapping[JobId, JobState | None]


def show_status(output: Output, said: JobAnswer) -> None:
    """One job, its tasks and where they listen: a line each."""
    if output.as_json:
        output.document(said)
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
        output.warning(f"timed out: {' '.join(left)} {'continues' if len(left) == 1 else 'continue'}")


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
