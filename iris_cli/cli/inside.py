"""Commands inside a task. They write requests to the task's outbox; the next poll answers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from iris_cli.client.fields import without_inheritance
from iris_cli.client.outbox import decode_answer
from iris_cli.core import JobId, JobRequest, JobState, parse_job_id, parse_task_id
from iris_cli.core.messages.requests import Cancel, CancelAnswer, JobAnswer, Status, Submitted
from iris_cli.errors import ExitCode, UsageError
from iris_cli.render import jobs as render

if TYPE_CHECKING:
    from iris_cli.cli.context import Context
    from iris_cli.ops.logs.log_reading import LogLine, Query
    from iris_cli.ops.logs.logs import TaskLog


def launch(
    iris: Context, request: JobRequest, *, request_id: str | None, inherit: bool, wait: bool, follow: bool
) -> int:
    """Submit a child job of this task. `inherit`: the child inherits the constraints of this task's job."""
    if not inherit:
        request = without_inheritance(request)
    answer = iris.outbox.submit_job(request, request_id)
    job = JobId(answer["job"])
    if not iris.output.as_json:
        iris.output.line(job)
        iris.output.flush()
    elif not (wait or follow):
        iris.output.document(decode_answer(answer, Submitted))
    if follow:
        from iris_cli.ops.logs.log_reading import Query

        logs(iris, job, Query(tail=None), follow=True, folded=True)
    return wait_for(iris, [job], None) if wait or follow else ExitCode.OK


def status(iris: Context, job: str | None) -> int:
    """Print the status of this task's job, or of a child job."""
    answer = iris.outbox.ask(Status(job=None if job is None else parse_job_id(job)))
    render.show_status_inside(iris.output, decode_answer(answer, JobAnswer))
    return ExitCode.OK


def wait_for(iris: Context, jobs: Sequence[str], timeout: float | None) -> int:
    """Wait until child jobs have ended. Return the exit code of `iris wait`."""
    from iris_cli.ops.loop.foreground import WaitResult

    names = list(dict.fromkeys(map(parse_job_id, jobs)))
    try:
        replies = iris.outbox.final_answers(names, timeout)
    except KeyboardInterrupt:
        return iris.interrupted(f"stopped waiting for {', '.join(names)}")
    answers = (None if each is None else decode_answer(each, JobAnswer) for each in replies)
    found = dict(zip(names, answers, strict=True))
    render.show_waited_inside(iris.output, found)
    states = {
        job: JobState.RUNNING if answer is None else JobState(answer.job.state)
        for job, answer in found.items()
    }
    return WaitResult(states).exit_code


def cancel(iris: Context, jobs: Sequence[str], reason: str) -> int:
    """Cancel child jobs. Print the cancelled jobs also if a later one fails."""
    names = list(dict.fromkeys(map(parse_job_id, jobs)))
    answers: dict[JobId, CancelAnswer] = {}
    try:
        for job in names:
            answers[job] = decode_answer(iris.outbox.ask(Cancel(job=job, reason=reason)), CancelAnswer)
    finally:
        if answers:
            render.show_cancelled_inside(iris.output, answers)
    return ExitCode.OK


def logs(iris: Context, what: str, query: Query, *, follow: bool, folded: bool) -> int:
    """Print the output of this task's job, of a child job, or of one of their tasks."""
    from iris_cli.ops.logs.follow import Step
    from iris_cli.render.logs.log_lines import LogPrinter, show_logs

    if not follow:
        show_logs(iris.output, list(_task_logs(iris, what, query)), folded=folded)
        return ExitCode.OK
    job, ranks = _parse_job_or_task(what)
    iris.outbox.check_no_deadlock(job)
    ranks = ranks or query.ranks
    count = len(ranks) or len(iris.outbox.status(job).tasks)
    printer = LogPrinter(iris.output, prefixed=count > 1, folded=False)

    def sink(line: LogLine) -> None:
        if line.stream in query.streams:
            printer.step(Step(texts=[line.as_text()]))

    iris.outbox.wait(job, None, ranks, sink)
    return ExitCode.OK


def _task_logs(iris: Context, what: str, query: Query) -> Iterator[TaskLog]:
    from iris_cli.client.outbox import tasks_of, with_attempt
    from iris_cli.ops.logs.logs import TaskLog

    job, ranks = _parse_job_or_task(what)
    tasks = tasks_of(iris.outbox.status(job), ranks or query.ranks)
    for task in tasks if query.attempt is None else with_attempt(tasks, query.attempt):
        lines: list[LogLine] = []
        attempt = task.attempt if query.attempt is None else query.attempt
        if task.attempt is not None:
            lines = iris.outbox.logs(task.id, tail=query.tail, attempt=attempt, streams=query.streams)
        yield TaskLog(
            task=parse_task_id(task.id),
            state=task.state,
            attempt=attempt,
            worker=task.worker,
            lines=tuple(lines),
            note=task.why if task.attempt is None else "" if lines or query.tail == 0 else "no output",
        )


def _parse_job_or_task(what: str) -> tuple[JobId, tuple[int, ...]]:
    """Return the job, and a tuple with the index of the task if `what` names a task."""
    try:
        return parse_job_id(what), ()
    except UsageError:
        if "/task-" not in what:
            raise
    task = parse_task_id(what)
    return task.job, (task.index,)
