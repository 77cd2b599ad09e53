"""The same view again and again, in place."""

from __future__ import annotations

from collections.abc import Callable

from iris_cli.errors import UsageError
from iris_cli.render.console import Output

EVERY = 2.0
"""Seconds between two looks."""


def refresh(output: Output, show: Callable[[], None], sleep: Callable[[float], None]) -> None:
    """Show until interrupted, on a terminal's second screen. Raises UsageError where there is no terminal."""
    if output.as_json or output.quiet or not output.console.is_terminal:
        raise UsageError("--watch needs a terminal", hint="leave it out, or: watch -n 2 iris status")
    with output.console.screen(hide_cursor=True):
        while True:
            output.console.clear()
            show()
            sleep(EVERY)
