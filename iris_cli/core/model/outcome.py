"""How something ended, and why: the same few words on attempts, tasks and jobs."""

from __future__ import annotations

import signal
from enum import StrEnum

from iris_cli.core.ids import TaskId
from iris_cli.core.structs import Value


class EndReason(StrEnum):
    """Why an attempt, a task or a job ended."""

    OK = "ok"
    USER_ERROR = "user_error"
    TIMEOUT = "timeout"
    OOM = "oom"
    SIGNAL = "signal"
    SETUP_FAILED = "setup_failed"
    WORKER_FAILED = "worker_failed"
    PREEMPTED = "preempted"
    DISPATCH_FAILED = "dispatch_failed"
    SIBLING = "sibling"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    JOB_ENDED = "job_ended"
    SCHEDULING_TIMEOUT = "scheduling_timeout"
    DEPENDENCY_FAILED = "dependency_failed"


INFRASTRUCTURE = frozenset({EndReason.WORKER_FAILED, EndReason.PREEMPTED})
"""Ends that say something of a host, not of the user's program. They outrank exit codes: when a host
vanishes, its peers die with exit 1."""

PROGRAM_FAILURES = frozenset({EndReason.USER_ERROR, EndReason.OOM, EndReason.SIGNAL, EndReason.SETUP_FAILED})
"""Ends that are charged against `max_retries_failure`. A time limit is not: what ran out is never retried."""


class End(Value, frozen=True, kw_only=True):
    """The end of an attempt, a task or a job.

    `at` is when it happened, in seconds since the epoch by the operator's clock (a worker's time is
    corrected for skew before it gets here). `trigger` names the task to blame where that is another one. `ran` is
    for how many seconds the command of an attempt ran, by the clock of its worker; None if the worker did not
    report it.
    """

    reason: EndReason
    at: float = 0.0
    exit_code: int | None = None
    trigger: TaskId | None = None
    error: str = ""
    log_tail: str = ""
    ran: float | None = None

    def because(self, reason: EndReason) -> End:
        """The same end with another reason."""
        return End(
            reason=reason,
            at=self.at,
            exit_code=self.exit_code,
            trigger=self.trigger,
            error=self.error,
            log_tail=self.log_tail,
            ran=self.ran,
        )

    def of_job(self, culprit: TaskId, at: float) -> End:
        """The end of a job that one of its tasks, the culprit, ended like this."""
        return End(
            reason=self.reason,
            at=at,
            exit_code=self.exit_code,
            trigger=self.trigger or culprit,
            error=self.error,
            log_tail=self.log_tail,
            ran=self.ran,
        )

    def of_task(self) -> End:
        """The same for the task or the job; the log and the run time stay with the attempt."""
        return End(
            reason=self.reason, at=self.at, exit_code=self.exit_code, trigger=self.trigger, error=self.error
        )


def signal_of(end: End) -> str | None:
    """The name of the signal that ended the command (`SIGKILL`), or None.

    The exit code alone can't tell: a shell exits with 137, too, if the last program that it ran was killed.
    """
    return _signal_name(end.exit_code) if end.reason is EndReason.SIGNAL else None


def reason_of_exit(exit_code: int, cause: str) -> EndReason:
    """The reason that a worker's exit record stands for. `cause` is empty, `timeout`, `oom`, or `signal`."""
    if cause in (EndReason.TIMEOUT, EndReason.OOM):
        return EndReason(cause)
    if exit_code == 0:
        return EndReason.OK
    signalled = cause == EndReason.SIGNAL and _signal_name(exit_code)
    return EndReason.SIGNAL if signalled else EndReason.USER_ERROR


def _signal_name(exit_code: int | None) -> str | None:
    """The signal behind a shell's exit status above 128, or None."""
    if exit_code is None or not 128 < exit_code < 128 + 65:
        return None
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return None
