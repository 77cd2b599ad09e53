"""What can go wrong, as values: a message in one line, a hint what to type next, an exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command. They are API: scripts and cron lines depend on them."""

    OK = 0
    FAILED = 1  # for `wait` and `--wait`: the job failed
    USAGE = 2
    CONFIG = 3
    NOT_FOUND = 4
    LOCKED = 5
    LOG_DAMAGED = 6
    UNREACHABLE = 7
    KILLED = 8
    UNSCHEDULABLE = 9
    NOT_WRITABLE = 10
    INTERRUPTED = 130
    NOT_RUN = 255  # `iris run` failed; its other codes are those of the program


class IrisError(Exception):
    """An error a person can act on. `message` is one line; `hint` says what to type next."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(IrisError):
    """The command or the job asks for something that can't be meant."""

    exit_code = ExitCode.USAGE


class ConfigError(IrisError):
    """`cluster.yaml` or a job file is wrong; `problems` holds every finding, one line each."""

    exit_code = ExitCode.CONFIG

    def __init__(self, message: str, *, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class NotFoundError(IrisError):
    """No such job, task or worker."""

    exit_code = ExitCode.NOT_FOUND


class UnschedulableError(IrisError):
    """No worker could ever run what is asked for."""

    exit_code = ExitCode.UNSCHEDULABLE


class LockedError(IrisError):
    """Another invocation holds the state directory."""

    exit_code = ExitCode.LOCKED


class LogDamagedError(IrisError):
    """The event log can't be trusted as it is; nothing was written."""

    exit_code = ExitCode.LOG_DAMAGED


class LogReplacedError(LogDamagedError):
    """What this command has read is no longer in the log: whoever goes on begins anew, from its first line."""


class UnreachableError(IrisError):
    """A worker that is needed for this command did not answer."""

    exit_code = ExitCode.UNREACHABLE


class NotWritableError(IrisError):
    """The state could not be written; nothing was dispatched."""

    exit_code = ExitCode.NOT_WRITABLE


class WorkspaceGoneError(IrisError):
    """A packed directory that a job was submitted with can't be read any more: nothing starts without it."""


class OutputError(IrisError):
    """What was to be printed could not be: a full disk, say. What the command did before is done."""
