"""From an error to what the operator sees: one line, a hint, an exit code. Decided here, once."""

from __future__ import annotations

import sys

from iris_cli.errors import ConfigError, ExitCode, IrisError
from iris_cli.render.clean import clean_line

_BEHIND_IT = 0.01  # seconds


def report(error: IrisError, *, verbose: bool) -> ExitCode:
    """Say what is wrong and what to type next; the traceback only if asked for."""
    if verbose:
        import traceback

        traceback.print_exception(error)
    lines = [f"error: {error.message}"]
    if isinstance(error, ConfigError):
        lines += [f"  {problem}" for problem in error.problems]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    for line in lines:
        sys.stderr.write(clean_line(line) + "\n")
    return error.exit_code


def interrupted() -> ExitCode:
    """Ctrl-C, in one line."""
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
    """Ctrl-C while Python cleaned up, where it would be shown as a traceback and be lost: it is pressed again.

    By SIGTERM, which ends us alike: what a script runs behind `&` hears no SIGINT.
    """
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import os
    import signal
    import threading

    again = threading.Timer(_BEHIND_IT, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True
    again.start()
