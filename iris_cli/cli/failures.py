"""From an error to what the operator sees: one line, a hint, an exit code. Decided here, once."""

from __future__ import annotations

import sys
from typing import Any

from iris_cli.core.event import IllegalTransitionError
from iris_cli.errors import ConfigError, ExitCode, IrisError
from iris_cli.render.clean import clean_line
from iris_cli.render.console import SCHEMA_VERSION

_BEHIND_IT = 0.01  # seconds


class CommandInterruptedError(IrisError):
    """Ctrl-C ended the command."""

    exit_code = ExitCode.INTERRUPTED


def report(error: IrisError, *, verbose: bool, as_json: bool = False) -> ExitCode:
    """Print the error and its hint to stderr, as a JSON document if asked for. Print a traceback only if verbose."""
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
    if isinstance(fault, IllegalTransitionError) and not verbose:  # else the traceback had it
        lines += [f"  {line}" for line in fault.story]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    for line in lines:
        sys.stderr.write(clean_line(line) + "\n")
    return error.exit_code


def _document(error: IrisError) -> str:
    """Return the error as one line of JSON; the problems of a configuration are a list of their own."""
    import json

    fields: dict[str, Any] = {
        "message": error.message,
        "hint": error.hint,
        "exit_code": int(error.exit_code),
    }
    if isinstance(error, ConfigError):
        fields["problems"] = list(error.problems)
    return json.dumps({"schema_version": SCHEMA_VERSION, "error": fields})


def interrupted(*, as_json: bool = False) -> ExitCode:
    """Print that Ctrl-C ended the command."""
    if as_json:
        return report(CommandInterruptedError("interrupted"), verbose=False, as_json=True)
    sys.stderr.write("interrupted\n")
    return ExitCode.INTERRUPTED


def unexpected(error: Exception) -> IrisError:
    """A fault of ours, in one line. What is in the log stays true; the command can be run again."""
    fault = IrisError(
        f"internal error: {type(error).__name__}: {error}",
        hint="run it again with --verbose and report what it prints; iris doctor checks the state",
    )
    fault.__cause__ = error  # whose traceback is the one that helps
    return fault


def unraised(what: sys.UnraisableHookArgs) -> None:
    """Deliver a Ctrl-C that came during a clean-up again: Python would print a traceback and lose it.

    The signal is SIGTERM, which ends the command in the same way: a background process of a script ignores SIGINT.
    """
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import os
    import signal
    import threading

    while True:
        try:
            again = threading.Timer(_BEHIND_IT, os.kill, (os.getpid(), signal.SIGTERM))
            again.daemon = True
            again.start()
            return
        except KeyboardInterrupt:  # on a busy machine the signal may come before the end of this function
            continue
