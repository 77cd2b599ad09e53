"""Print the results of commands that submit, await, cancel, retry or change jobs, also inside a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core import AttemptId, Cluster, JobId, JobState, Priority, Task, TaskId, TaskState, WorkerId
from iris_cli.core.lifecycle.display import job_display
from iris_cli.core.messages.requests import CancelAnswer, JobAnswer, JobPart, TaskPart
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import count
from iris_cli.ops.jobs.launch import workers_in_set_up
from iris_cli.ops.views.cycles import Cycles
from iris_cli.ops.views.failure import cause_words
from iris_cli.ops.views.view import reason_words
from iris_cli.render.console import Output
from iris_cli.render.tables import fold

if TYPE_CHECKING:
    from iris_cli.core.scheduling import ReasonKind
    from iris_cli.journal.state_dir import StateDir
    from iris_cli.ops.cycle.cycle import CycleResult
    from iris_cli.ops.jobs.change import Cancelled, Changed, Retried
    from iris_cli.ops.loop.foreground import WaitResult


class WaitReason(Struct, frozen=True):
    """Why a job is pending."""

    kind: ReasonKind
    text: str


class UnansweredWorker(Struct, frozen=True):
    """A worker that did not answer the start call of a task."""

    worker: WorkerId
    detail: str


class LaunchedDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris launch`: the job after its first cycle. `placed` has the worker of each task."""

    job: JobId
    state: JobState
    display: str
    placed: Mapping[TaskId, WorkerId]
    waiting: Sequence[WaitReason]
    silent: Sequence[UnansweredWorker]
    cycles: Cycles | None


def show_launched(
    output: Output,
    cluster: Cluster,
    job_id: JobId,
    result: CycleResult | None,
    unanswered: Mapping[WorkerId, str],
    no_cycles: str = "",
    cycles: Cycles | None = None,
) -> None:
    """Print the job's state after its first cycle: as JSON on stdout, otherwise as a message on stderr.

    `result`: the first cycle; None if the command ran no cycle, or the cycle failed. `unanswered`: workers that did
    not answer the start of a task, with the reason. `no_cycles`: why no cycles run, with the command to type; '' if
    cycles run. `cycles`: the runner of the cycles, for JSON.
    """
    tasks = cluster.tasks_of(job_id)
    waiting = result.plan.reasons(job_id) if result is not None and result.plan is not None else ()
    if output.as_json:
        output.document(
            LaunchedDocument(
                job=job_id,
                state=cluster.job_state(job_id),
                display=job_display(cluster, job_id),
                placed={task.id: task.attempts[-1].worker for task in tasks if _is_placed(task)},
                waiting=[WaitReason(reason.kind, reason.text) for reason in waiting],
                silent=[UnansweredWorker(worker, detail) for worker, detail in unanswered.items()],
                cycles=cycles,
            )
        )
        return
    preparing = workers_in_set_up(cluster, job_id)
    any_placed = any(map(_is_placed, tasks))
    details = f"; details: iris why {job_id}"
    if is_unplaced := result is None and not any_placed:
        words = f"submitted; {no_cycles}" if no_cycles else f"submitted, not placed yet{details}"
    elif unanswered and not (waiting and any_placed):
        words = f"{_unanswered_words(cluster, unanswered)}{details}"
    elif cluster.jobs[job_id].end is not None:
        cause = cause_words(cluster, cluster.jobs[job_id])
        words = f"{job_display(cluster, job_id)}{f': {cause}' if cause else ''}"
    elif waiting:
        pending = sum(task.state is TaskState.PENDING for task in tasks)
        why = reason_words(waiting)
        words = f"{_placement_words(tasks)}; {pending} pending: {why}" if any_placed else f"pending: {why}"
        words += details
    elif preparing:
        words = f"being set up on {fold(dict.fromkeys(preparing))}; {no_cycles or 'starts in a later cycle'}"
    else:
        words = _placement_words(tasks)
    output.message(f"{job_id}: {words}")
    reason_is_printed = is_unplaced or (preparing and not waiting and not unanswered)
    if no_cycles and not reason_is_printed and not cluster.job_state(job_id).terminal:
        output.message(no_cycles)


def _unanswered_words(cluster: Cluster, unanswered: Mapping[WorkerId, str]) -> str:
    """Return `no answer from w (connect: no route)`; `can't start on w (...)` if the host answered."""
    worker, detail = next(iter(unanswered.items()))
    has_answered = cluster.workers[worker].condition in (
        WorkerCondition.AUTH_FAILED,
        WorkerCondition.UNTRUSTED,
    )
    problem = "can't start on" if has_answered else "no answer from"
    return f"{problem} {fold(unanswered)} ({detail})"


def _placement_words(tasks: Sequence[Task]) -> str:
    """Return `RUNNING on v5a-[0-3]`, `3 of 4 tasks running on v5a-[0-2]`, or why no task is placed."""
    running = [task for task in tasks if task.state is TaskState.RUNNING]
    hosts = fold(task.attempts[-1].worker for task in running or filter(_is_placed, tasks))
    if len(running) == len(tasks):
        return f"RUNNING on {hosts}"
    if running:
        return f"{len(running)} of {count(len(tasks), 'task')} running on {hosts}"
    if hosts:
        return f"placed on {hosts}"
    refused = ((last.worker, last.end) for task in tasks for last in task.attempts[-1:] if last.refused)
    words = (f"pending: failed to start on {worker}: {end.error}" for worker, end in refused if end)
    return next(words, "nothing is running yet")


def _is_placed(task: Task) -> bool:
    """Return whether the task is placed. A task whose start failed has attempts, but is pending again."""
    return bool(task.attempts) and task.state is not TaskState.PENDING


class WaitedJob(Struct, frozen=True, kw_only=True):
    """One job. `reason` is the cause of its end. Inside a task, `display` is absent if an older iris answered."""

    job: JobId
    state: JobState
    display: str | UnsetType = UNSET
    reason: str


class WaitedDocument(Struct, frozen=True):
    """The result of `iris wait` and of `--wait`. `timed_out`: some jobs have not ended. No `cycles` inside a task."""

    jobs: Sequence[WaitedJob]
    timed_out: bool
    cycles: Cycles | UnsetType | None = UNSET


def show_waited(
    output: Output,
    cluster: Cluster,
    waited: WaitResult,
    files: StateDir | None = None,
    *,
    no_cycles: str = "",
    cycles: Cycles | None = None,
) -> None:
    """Print a line for each job with its state and cause. If some jobs are open, print the commands to type to stderr.

    `files`: the state directory, whose copied output may show the cause of a failure. `no_cycles` and `cycles`: as in
    `show_launched`.
    """
    jobs = [
        WaitedJob(
            job=job,
            state=state,
            display=job_display(cluster, job),
            reason=cause_words(cluster, cluster.jobs[job], files),
        )
        for job, state in waited.states.items()
    ]
    if output.as_json:
        output.document(WaitedDocument(jobs, timed_out=bool(waited.open), cycles=cycles))
    else:
        _print_states(output, jobs)
    if waited.open:
        names = " ".join(waited.open)
        output.warning(f"the wait timed out; {no_cycles or continue_words(waited.open)}")
        output.message(f"hint: iris wait {names}, iris why {waited.open[0]}, or iris cancel {names}")
        if waited.trouble is not None and not no_cycles:
            output.warning(f"no cycle could be run: {waited.trouble.message}")


def _print_states(output: Output, jobs: Iterable[WaitedJob]) -> None:
    for each in jobs:
        print_line = output.done if each.state is JobState.SUCCEEDED else output.failed
        reason = f": {each.reason}" if each.reason else ""
        print_line(f"{each.job}: {each.state if each.display is UNSET else each.display}{reason}")


def continue_words(jobs: Sequence[str]) -> str:
    """Return `train continues`, or `train, eval continue`."""
    return f"{', '.join(jobs)} {'continues' if len(jobs) == 1 else 'continue'}"


class CancelledDocument(Struct, frozen=True):
    """The result of `iris cancel`. `over`: jobs that had ended before, with their states.

    `stopping`: attempts that are not proven gone, and their workers.
    """

    cancelled: Sequence[JobId]
    over: Mapping[JobId, JobState]
    stopping: Mapping[AttemptId, WorkerId]
    cycles: Cycles | None


def show_cancelled(
    output: Output,
    cluster: Cluster,
    result: Cancelled,
    *,
    waited: bool = False,
    no_cycles: str = "",
    cycles: Cycles | None = None,
) -> None:
    """Print the cancelled jobs, the jobs that had ended before, and the number of attempts still being stopped.

    `waited`: the command waited for the stops. `no_cycles` and `cycles`: as in `show_launched`.
    """
    stopping = {attempt: cluster.attempt(attempt).worker for attempt in result.stopping}
    over = {job: cluster.job_state(job) for job in result.already_ended}
    if output.as_json:
        output.document(CancelledDocument(result.cancelled, over, stopping, cycles))
        return
    _print_cancelled(output, result.cancelled, over)
    attempts_are = f"{count(len(stopping), 'attempt')} {'is' if len(stopping) == 1 else 'are'}"
    workers = fold(dict.fromkeys(stopping.values()))
    if stopping and waited:
        advice = no_cycles or "retried in every cycle: iris workers"
        output.warning(f"{attempts_are} not proven gone on {workers} (silent or unkillable); {advice}")
    elif stopping:
        jobs = dict.fromkeys(attempt.task.job for attempt in stopping)
        names = " ".join(jobs) if len(jobs) < 4 else "JOB..."
        output.message(
            f"{attempts_are} being stopped on {workers}; iris cancel --wait {names} waits for that"
        )


def _print_cancelled(
    output: Output, cancelled: Iterable[JobId], over: Mapping[JobId, JobState | None]
) -> None:
    for job in cancelled:
        output.done(f"cancelled {job}")
    for job, state in over.items():
        output.message(f"{job} had already ended" + (f" ({state.value})" if state else ""))


class RetriedDocument(Struct, frozen=True):
    """The result of `iris retry`. `retried`: attempts that this call ordered to stop.

    `stopping`: attempts that are not proven gone, and their workers.
    """

    job: JobId
    retried: Sequence[AttemptId]
    stopping: Mapping[AttemptId, WorkerId]
    cycles: Cycles | None


def show_retried(output: Output, cluster: Cluster, result: Retried, cycles: Cycles | None) -> None:
    """Print the attempts that are being stopped. `cycles`: as in `show_launched`."""
    stopping = {attempt: cluster.attempt(attempt).worker for attempt in result.stopping}
    if output.as_json:
        output.document(RetriedDocument(result.job, result.retried, stopping, cycles))
        return
    hosts = [cluster.attempt(attempt).worker for attempt in result.retried]
    subject = result.task or result.job
    if result.retried:
        output.done(f"retrying {subject}: stopping {_attempts(hosts)}")
    elif stopping:
        output.message(f"{subject}: already stopping {_attempts(stopping.values())}")
    else:
        output.message(f"{subject}: nothing to retry, no attempt is live; details: iris why {subject}")


class ChangedJob(Struct, frozen=True):
    """The fields of a job that an operator can change. `changed` is false if the fields had these values before."""

    changed: bool
    held: bool
    priority: Priority
    scheduling_timeout: float


class ChangedDocument(Struct, frozen=True):
    """The result of `iris hold`, `iris release` and `iris set`: each job as it is now."""

    jobs: Mapping[JobId, ChangedJob]
    cycles: Cycles | None


def show_changed(
    output: Output, cluster: Cluster, result: Changed, what: str, cycles: Cycles | None, unchanged: str = ""
) -> None:
    """Print each job with its change. `what`: the change in words. `cycles`: as in `show_launched`.

    `unchanged`: the words for a job that already had the new values (default: `already {what}`).
    """
    changed = frozenset(result.changed)
    if output.as_json:
        states = {}
        for job_id in (*result.changed, *result.unchanged):
            job = cluster.jobs[job_id]
            states[job_id] = ChangedJob(
                job_id in changed, job.held_at is not None, job.priority, job.scheduling_timeout
            )
        output.document(ChangedDocument(states, cycles))
        return
    for job_id in result.changed:
        live = sum(attempt.stop is None for _, attempt in cluster.live_attempts_of(job_id))
        continues = f"; {count(live, 'started task')} continue{'s' * (live == 1)}" if live else ""
        output.done(f"{job_id}: {what}{continues}")
    for job_id in result.unchanged:
        output.message(f"{job_id}: {unchanged or f'already {what}'}")


def _attempts(workers: Iterable[WorkerId]) -> str:
    """Return `3 attempts on v5a-[0-1]`. `workers`: the worker of each attempt."""
    workers = list(workers)
    return f"{count(len(workers), 'attempt')} on {fold(dict.fromkeys(workers))}"


class CancelledInside(Struct, frozen=True):
    """The result of `iris cancel` inside a task.

    `over`: jobs that had ended before, with their states; a state is null if an older iris answered.
    """

    cancelled: Sequence[JobId]
    over: Mapping[JobId, JobState | None]


def show_status_inside(output: Output, answer: JobAnswer) -> None:
    """Print a line for the job, for each task and for each endpoint."""
    if output.as_json:
        output.document(answer)
        return
    job = answer.job
    output.line(_join_words(job.id, _display(job), job.why))
    for task in answer.tasks:
        output.line(_join_words(task.id, _display(task), task.worker, task.why))
    for endpoint in () if answer.endpoints is UNSET else answer.endpoints:
        output.line(
            _join_words(endpoint.task, f"endpoint {endpoint.name}", f"{endpoint.address}:{endpoint.port}")
        )


def _display(part: JobPart | TaskPart) -> str:
    """Return the display of a state, or the state itself if an older iris answered."""
    return part.state if part.display is UNSET else part.display


def show_waited_inside(output: Output, found: Mapping[JobId, JobAnswer | None]) -> None:
    """Print how each job ended. `found`: the answer for each job; None if the job had not ended at the timeout."""
    ended = [
        WaitedJob(
            job=job, state=JobState(answer.job.state), display=answer.job.display, reason=answer.job.why
        )
        for job, answer in found.items()
        if answer is not None
    ]
    if output.as_json:
        output.document(WaitedDocument(ended, timed_out=len(ended) < len(found)))
    else:
        _print_states(output, ended)
    still_open = [job for job, answer in found.items() if answer is None]
    if still_open:
        names = ", ".join(still_open)
        output.warning(f"the wait timed out; no end reported for {names}: iris status {still_open[0]}")


def show_cancelled_inside(output: Output, answers: Mapping[JobId, CancelAnswer]) -> None:
    """Print the cancelled jobs, and the jobs that had ended before."""
    cancelled = [job for job, answer in answers.items() if answer.cancelled]
    over = {
        job: JobState(answer.state) if answer.state else None
        for job, answer in answers.items()
        if not answer.cancelled
    }
    if output.as_json:
        output.document(CancelledInside(cancelled, over))
        return
    _print_cancelled(output, cancelled, over)


def _join_words(*words: str | None) -> str:
    return "  ".join(word for word in words if word)
