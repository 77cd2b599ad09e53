"""Words for end reasons and causes."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from iris_cli.core import (
    AttemptId,
    Cluster,
    End,
    EndReason,
    Job,
    Task,
    TaskId,
    WorkerId,
    count,
    format_duration,
)
from iris_cli.core.lifecycle.display import last_failures
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, signal_of
from iris_cli.errors import NotWritableError

if TYPE_CHECKING:
    from iris_cli.core.known_causes import KnownCause
    from iris_cli.journal.state_dir import StateDir

_WORDS = {
    EndReason.OK: "",
    EndReason.USER_ERROR: "failed",
    EndReason.TIMEOUT: "exceeded its time limit",
    EndReason.OOM: "ran out of memory",
    EndReason.SIGNAL: "killed by a signal",
    EndReason.SETUP_FAILED: "setup failed",
    EndReason.WORKER_FAILED: "host lost",
    EndReason.PREEMPTED: "VM preempted",
    EndReason.DISPATCH_FAILED: "failed to start",
    EndReason.SIBLING: "stopped with its gang",
    EndReason.CANCELLED: "cancelled",
    EndReason.RETRIED: "stopped by iris retry",
    EndReason.JOB_ENDED: "stopped because the job ended",
    EndReason.SCHEDULING_TIMEOUT: "not placed in time",
    EndReason.DEPENDENCY_FAILED: "a job in --after did not succeed",
}
_NEVER_PLACED = frozenset({EndReason.SCHEDULING_TIMEOUT, EndReason.DEPENDENCY_FAILED})
_ERROR_IS_REASON = _NEVER_PLACED | {EndReason.WORKER_FAILED}

MAX_LOG_TAIL = 4000
"""Maximum bytes of a log tail in the event log. If a log tail is that long, the task may have written more."""

LOG_LINES = 20  # number of last log lines on a failure card

_STOP_EXIT_CODES = frozenset({128 + signal.SIGTERM, 128 + signal.SIGKILL})
_STOPPED_WITH_OTHERS = frozenset({EndReason.SIBLING, EndReason.JOB_ENDED})
_NO_FAILURE_OF_ITS_OWN = _STOPPED_WITH_OTHERS | {EndReason.OK, EndReason.DISPATCH_FAILED}
_CODE_IS_REASON = frozenset({EndReason.USER_ERROR, EndReason.SIGNAL})


def exit_words(end: End | None) -> str:
    """Return the exit code as text, such as `1` or `137 (SIGKILL)`; '' without an exit code."""
    if end is None or end.exit_code is None:
        return ""
    name = signal_of(end)
    return f"{end.exit_code} ({name})" if name else str(end.exit_code)


def without_worker(text: str, worker: WorkerId) -> str:
    """Return the text without `worker ID at HOST:PORT: `, so that equal problems of several workers fold."""
    before, name, after = text.partition(f"worker {worker}")
    if not name or (after and after[0] not in " :"):  # another worker, whose id is longer
        return text
    return before + (after[4:].partition(" ")[2] if after.startswith(" at ") else after.lstrip(" :"))


def skew_words(skew: float, other: str = "this machine") -> str:
    """Return the error of a clock in words, such as `is 2m ahead of this machine`. `skew` is in seconds."""
    if not skew:
        return "is correct"
    return f"is {format_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} {other}"


def reason_words(reason: EndReason | None) -> str:
    """Return an end reason in words, such as `failed`, `VM preempted` or `succeeded`; for None `not ended yet`."""
    return "not ended yet" if reason is None else _WORDS[reason] or "succeeded"


def stop_words(reason: EndReason) -> str:
    """Return why an attempt is being stopped, such as `being stopped: VM preempted`."""
    words = reason_words(reason)
    return f"being {words}" if words.startswith("stopped") else f"being stopped: {words}"


def stop_cause(job: Job, tasks: Iterable[Task]) -> str:
    """Return which attempts of an open job are being stopped and why, such as `rank 3 is being stopped: host lost`.

    Return '' if no attempt is being stopped, or only siblings of another attempt.
    """
    current = ((task, task.current) for task in tasks if task.current is not None)
    stops = [(task, each.stop) for task, each in current if each.live and each.stop is not None]
    causes = [(task, stop) for task, stop in stops if stop.reason is not EndReason.SIBLING]
    if not causes or job.end is not None:
        return ""
    task, stop = causes[0]
    unit = "rank" if job.is_gang else "task"
    who = f"{unit} {task.index} is " if len(causes) == 1 else f"{len(causes)} {unit}s are "
    return f"{who if job.replicas > 1 else ''}{stop_words(stop.reason)}"


def end_words(end: End) -> str:
    """Return why an attempt, task or job ended, in a few words; '' for a success without an error."""
    if name := signal_of(end):
        return f"killed by {name}"
    if end.reason in _CODE_IS_REASON and end.exit_code is not None:
        return f"exit {end.exit_code}"
    words = _WORDS[end.reason]
    if end.reason is EndReason.SIBLING and end.trigger is not None:
        words = f"{words}: rank {end.trigger.index} failed first"
    elif end.error and end.reason is EndReason.TIMEOUT:
        words = f"{words} of {end.error}"
    elif end.error and end.reason in _ERROR_IS_REASON:
        words = end.error
    elif end.error:
        words = f"{words}: {end.error}" if words else end.error
    if end.exit_code and not _was_stopped_by_iris(end):
        words += f", exit {end.exit_code}"
    return words


def _was_stopped_by_iris(end: End) -> bool:
    """Return True if the exit code means only that iris stopped the command."""
    if end.reason is EndReason.TIMEOUT:
        return end.exit_code in _STOP_EXIT_CODES
    return end.reason in (EndReason.SIBLING, EndReason.CANCELLED, EndReason.JOB_ENDED)


def all_is_shown(output: str) -> bool:
    """Return True if the task wrote no more lines than the failure card shows."""
    return len(output.encode("utf-8", "replace")) < MAX_LOG_TAIL and output.rstrip().count("\n") < LOG_LINES


def known_words(end: End, state: StateDir | None = None, attempt: AttemptId | None = None) -> str:
    """Return `: CAUSE` with the known cause of an attempt's failure; '' if its output shows no known cause."""
    if end.reason not in PROGRAM_FAILURES or not end.log_tail:
        return ""
    known = cause_of(state, attempt, end, end.log_tail)
    return f": {known.rule.cause}" if known is not None and known.line else ""


def task_end_words(task: Task, state: StateDir | None = None) -> str:
    """Return why a task ended, with the known cause of a failure; '' if the task is open or succeeded."""
    if task.end is None:
        return ""
    last = task.current.end if task.current is not None else None
    if (
        last is not None
        and task.end.reason in _STOPPED_WITH_OTHERS
        and last.reason not in _NO_FAILURE_OF_ITS_OWN
    ):
        other = f"; rank {task.end.trigger.index} failed first" if task.end.trigger is not None else ""
        if task.end.reason is EndReason.JOB_ENDED:
            other = "; the job had ended"
        return f"{end_words(last)}{known_words(last, state, task.current_id)}{other}"
    if last is None or last.reason is not task.end.reason:
        return end_words(task.end)
    return f"{end_words(task.end)}{known_words(last, state, task.current_id)}"


def who_failed(job: Job, task: Task, failed: int = 1) -> str:
    """Return `rank 2 failed first` for a gang, `task-2 failed` for a job of several tasks, otherwise `failed`.

    `failed` is the number of failed tasks. If it is greater than 1, return `3 of 500 tasks failed (max_task_failures is
    2), the first was task-7`.
    """
    if job.is_gang:
        return f"rank {task.index} failed first"
    if failed > 1:
        allowed = f" (max_task_failures is {job.max_task_failures})" if job.max_task_failures else ""
        return f"{failed} of {job.replicas} tasks failed{allowed}, the first was task-{task.index}"
    return f"task-{task.index} failed" if job.replicas > 1 else "failed"


def other_rank_words(task: TaskId, cause: str, first: TaskId, end: str) -> str:
    """Return words such as `rank 0 failed first: exit 134; cause: disk full (output of rank 2)`.

    `task`: the rank whose output shows the `cause` of the gang's failure. `first`: the rank that failed first.
    """
    return f"rank {first.index} failed first: {end}; cause: {cause} (output of rank {task.index})"


def job_cause(job: Job, cause: Task | None, failed: int = 1) -> str:
    """Return why a job ended, in a few words. `cause`: the task that caused it. `failed`: number of failed tasks."""
    if job.end is None:
        return ""
    if cause is None or cause.end is None:
        return end_words(job.end)
    words = end_words(cause.end)
    # A task that was never placed has not failed.
    has_failed = job.replicas > 1 and cause.end.reason not in _NEVER_PLACED
    return f"{who_failed(job, cause, failed)}: {words}" if has_failed else words


def cause_of(state: StateDir | None, attempt: AttemptId | None, end: End, output: str) -> KnownCause | None:
    """Return the cause that the last lines of output show, or the cause in the saved excerpt, or None."""
    from iris_cli.core.known_causes import known_cause

    known = known_cause(end, output)
    is_certain = known is not None and known.line and not known.rule.echo
    has_whole_output = len(end.log_tail.encode("utf-8", "replace")) < MAX_LOG_TAIL
    if is_certain or state is None or attempt is None or has_whole_output:
        return known
    with suppress(NotWritableError):  # `iris doctor` reports unreadable files
        return cause_in(state.task_logs.excerpt(attempt), end) or known
    return known


def cause_in(output: bytes, end: End) -> KnownCause | None:
    """Return the cause that a line of the output shows, or None."""
    from iris_cli.core.known_causes import known_cause

    found = known_cause(end, output.decode("utf-8", "replace")) if output else None
    return found if found is not None and found.line and not found.rule.echo else None


def retry_words(cluster: Cluster, job: Job, state: StateDir | None = None) -> str:
    """Return words such as `retry 1 of 2, after rank 7 failed: exit 1: disk full`.

    Return '' before the first retry and for an ended job. `state`: the state directory, whose excerpts of output may
    show a cause that the event log does not show.
    """
    failures = last_failures(job, cluster.tasks_of(job.id))
    if not failures:
        return ""
    task, attempt, end = failures[0]
    if end.reason is EndReason.RETRIED:
        return "retry, as requested"
    number, limit = job.failed_rounds if job.is_gang else task.failures, job.max_retries_failure
    if end.reason in INFRASTRUCTURE:
        number, limit = job.preempted_rounds if job.is_gang else task.preemptions, job.max_retries_preemption
    name = f"{'rank ' if job.is_gang else 'task-'}{task.index}"
    verb = " ended" if end.reason in INFRASTRUCTURE else " failed"
    task_words = f"{name}{verb}: " if job.replicas > 1 else ""
    more = f" (and {count(len(failures) - 1, 'more task')})" if len(failures) > 1 else ""
    known = known_words(end, state, AttemptId(task.id, attempt))
    return f"retry {number} of {limit}, after {task_words}{end_words(end)}{known}{more}"
