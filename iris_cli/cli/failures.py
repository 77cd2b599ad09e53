"""From an error to what the operator sees: one line, a hint, an exit code. Decided here, once."""

from __future__ import annotations

import sys
import traceback

from iris_cli.errors import ConfigError, ExitCode, IrisError
from iris_cli.render.clean import clean_line


def report(error: IrisError, *, verbose: bool) -> ExitCode:
    """Say what is wrong and what to type next; the traceback only if asked for."""
    if verbose:
        traceback.print_exception(error)
    lines = [f"error: {error.message}"]
    if isinstance(error, ConfigError):
        lines += [f"  {problem}" for problem in error.problems]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    for line in lines:
        sys.stderr.write(clean_line(line) + "\n")
    return error.exit_code
