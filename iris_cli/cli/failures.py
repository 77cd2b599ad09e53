"""Print errors: one line, a hint, an exit code."""

import sys
from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core.events import IllegalTransitionError
from iris_cli.errors import ConfigError, ExitCode, IrisError
from iris_cli.render.layout import clean_line

_DELAY = 0.01  # seconds until an interrupt is repeated


class ErrorFields(Struct, frozen=True, kw_only=True):
    """An error. `problems` lists the problems of a configuration file; absent for other errors."""

    message: str
    hint: str
    exit_code: int
    problems: Sequence[str] | UnsetType = UNSET


class ErrorDocument(Struct, frozen=True):
    """The JSON document of a failed command: one line on stderr."""

    error: ErrorFields


class CommandInterruptedError(IrisError):
    """Ctrl-C ended the command."""

    exit_code = ExitCode.INTERRUPTED


def report(error: IrisError, *, verbose: bool, as_json: bool = False) -> ExitCode:
    """Print the error and its hint to stderr, as a JSON document if requested. Print a traceback only if verbose."""
    if verbose:
        import traceback

        traceback.print_exception(error)
    if as_json:
        sys.stderr.write(_document(error) + "\n")
        return error.exit_code
    lines = [f"error: {error.message}"]
    if isinstance(error, ConfigError):
        lines += [f"  {problem}" for problem in error.problems]
    fault = error if isinstance(error, IllegalTransitionError) else error.__cause__
    if isinstance(fault, IllegalTransitionError) and not verbose:  # the traceback contains these lines
        lines += [f"  {line}" for line in fault.story]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    for line in lines:
        sys.stderr.write(clean_line(line) + "\n")
    return error.exit_code


def _document(error: IrisError) -> str:
    """Return the error as one line of JSON."""
    from iris_cli.render.as_json import json_text

    problems = error.problems if isinstance(error, ConfigError) else UNSET
    fields = ErrorFields(
        message=error.message, hint=error.hint, exit_code=int(error.exit_code), problems=problems
    )
    return json_text(ErrorDocument(fields))


def report_interrupt(text: str, *, as_json: bool) -> ExitCode:
    """Print that Ctrl-C ended the command."""
    if as_json:
        return report(CommandInterruptedError(text), verbose=False, as_json=True)
    sys.stderr.write(clean_line(text) + "\n")
    return ExitCode.INTERRUPTED


def internal_error(error: Exception) -> IrisError:
    """Return an error for an unexpected exception, with the exception as its cause."""
    fault = IrisError(
        f"internal error: {type(error).__name__}: {error}",
        hint="report the output of the same command with --verbose",
    )
    fault.__cause__ = error  # --verbose prints its traceback
    return fault


def raise_dropped_interrupt(what: "sys.UnraisableHookArgs") -> None:
    """Repeat a KeyboardInterrupt that a finalizer raised. Python itself would print it and continue.

    Sends SIGTERM, which raises KeyboardInterrupt too, because background processes of scripts ignore SIGINT.
    """
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import os
    import signal
    import threading

    while True:
        try:
            timer = threading.Timer(_DELAY, os.kill, (os.getpid(), signal.SIGTERM))
            timer.daemon = True
            timer.start()
            return
        except KeyboardInterrupt:  # the signal may arrive before this function returns
            continue
