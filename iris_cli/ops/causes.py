"""Ends in plain words."""

from __future__ import annotations

from iris_cli.core.job import Job
from iris_cli.core.outcome import End, EndReason, signal_name
from iris_cli.core.task import Task
from iris_cli.core.units import format_duration

_WORDS = {
    EndReason.OK: "",
    EndReason.USER_ERROR: "failed",
    EndReason.TIMEOUT: "ran longer than its time limit",
    EndReason.OOM: "ran out of memory",
    EndReason.SIGNAL: "killed by a signal",
    EndReason.SETUP_FAILED: "its setup failed",
    EndReason.WORKER_FAILED: "its worker failed",
    EndReason.PREEMPTED: "its VM was preempted",
    EndReason.DISPATCH_FAILED: "could not be started",
    EndReason.SIBLING: "stopped with its gang",
    EndReason.CANCELLED: "cancelled",
    EndReason.JOB_ENDED: "stopped because the job ended",
    EndReason.SCHEDULING_TIMEOUT: "not placed in time",
    EndReason.DEPENDENCY_FAILED: "a job it waits for did not succeed",
}
_ERROR_SAYS_IT = frozenset({EndReason.SCHEDULING_TIMEOUT, EndReason.DEPENDENCY_FAILED})
_CODE_SAYS_IT = frozenset({EndReason.USER_ERROR, EndReason.SIGNAL})


def exit_words(exit_code: int | None) -> str:
    """`1`, or `137 (SIGKILL or exit 137)`: the number alone can't tell a signal from an exit status."""
    if exit_code is None:
        return ""
    signal = signal_name(exit_code)
    return f"{exit_code} ({signal} or exit {exit_code})" if signal else str(exit_code)


def skew_words(skew: float) -> str:
    """`is 2m ahead of ours`, `is right`."""
    if not skew:
        return "is right"
    return f"is {format_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} ours"


def reason_words(reason: EndReason) -> str:
    """`failed`, `its VM was preempted`; `succeeded` for an end that went well."""
    return _WORDS[reason] or "succeeded"


def end_words(end: End) -> str:
    """Why something ended, in a few words; '' where there is nothing to say beyond that it went well."""
    if end.reason in _CODE_SAYS_IT and end.exit_code is not None:
        return f"exit {exit_words(end.exit_code)}"
    words = _WORDS[end.reason]
    if end.reason is EndReason.SIBLING and end.trigger is not None:
        words = f"{words}: {end.trigger} failed first"
    elif end.error and end.reason in _ERROR_SAYS_IT:
        words = end.error
    elif end.error:
        words = f"{words}: {end.error}" if words else end.error
    if end.exit_code and end.reason not in (EndReason.SIBLING, EndReason.CANCELLED, EndReason.JOB_ENDED):
        words += f", exit {exit_words(end.exit_code)}"
    return words


def who_failed(job: Job, task: Task) -> str:
    """`rank 2 failed first` for a gang, `task-2 failed` for a job of several tasks, else `failed`."""
    if job.is_gang:
        return f"rank {task.index} failed first"
    return f"task-{task.index} failed" if job.replicas > 1 else "failed"


def job_cause(job: Job, culprit: Task | None) -> str:
    """Why a job ended, in a few words: who is to blame, and what happened there."""
    if job.end is None:
        return ""
    if culprit is None or culprit.end is None:
        return end_words(job.end)
    words = end_words(culprit.end)
    return f"{who_failed(job, culprit)}: {words}" if job.replicas > 1 else words
