"""Errors with a message of one line, a hint that says what to type next, and an exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command. They are a stable interface: scripts and cron lines depend on them."""

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
    NOT_RUN = 255  # `iris run` failed, or its program has no exit code; otherwise it returns that code


class IrisError(Exception):
    """An error that the user can fix. `message` is one line; `hint` says what to type next."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(IrisError):
    """An invalid command or job."""

    exit_code = ExitCode.USAGE


class ConfigError(IrisError):
    """An invalid `cluster.yaml` or job file; `problems` lists all problems, one line each."""

    exit_code = ExitCode.CONFIG

    def __init__(self, message: str, *, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class NotFoundError(IrisError):
    """An unknown job, task or worker. `worker`: the unknown name, if it could be the name of a worker."""

    exit_code = ExitCode.NOT_FOUND

    def __init__(self, message: str, *, hint: str = "", worker: str = "") -> None:
        super().__init__(message, hint=hint)
        self.worker = worker


class UnschedulableError(IrisError):
    """No worker could ever run the job."""

    exit_code = ExitCode.UNSCHEDULABLE


class LockedError(IrisError):
    """Another invocation holds the state directory's lock."""

    exit_code = ExitCode.LOCKED


class LogDamagedError(IrisError):
    """The event log is damaged; nothing was written."""

    exit_code = ExitCode.LOG_DAMAGED


class LogReplacedError(LogDamagedError):
    """Lines that this command has read are not in the log any more. The log must be read again from its first line."""


class UnreachableError(IrisError):
    """A worker that this command needs did not answer."""

    exit_code = ExitCode.UNREACHABLE


class NotWritableError(IrisError):
    """The state can't be written; nothing was dispatched."""

    exit_code = ExitCode.NOT_WRITABLE


class WorkspaceGoneError(IrisError):
    """The packed workspace of a job is missing or damaged, so the job can't start."""


class OutputError(IrisError):
    """The output could not be written, for example to a full disk. The changes that the command made are kept."""
