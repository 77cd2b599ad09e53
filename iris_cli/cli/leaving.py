"""The background loop at the end of a command that leaves open jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_cli.cli.context import Context
from iris_cli.errors import IrisError

if TYPE_CHECKING:
    from iris_cli.ops.session import Session

_BY_HAND = "jobs wait until somebody runs: iris watch --schedule, or iris cron install"


def start_loop(iris: Context, session: Session) -> None:
    """Start the loop if it is needed, and print its pid. A failure is one warning, never an error of the command."""
    from iris_cli.ops.loop.automatic import start_if_needed
    from iris_cli.ops.loop.scope import logins_kill

    try:
        pid = start_if_needed(iris, session)
        ends = pid is not None and logins_kill(os.environ)
    except (OSError, IrisError) as error:
        words = error.message if isinstance(error, IrisError) else error.strerror or str(error)
        iris.output.warning(f"warning: the background loop could not be started: {words}; {_BY_HAND}")
        return
    if pid is not None:
        until = ", ends when you log out (loginctl enable-linger keeps it)" if ends else ""
        iris.output.message(f"background loop started (pid {pid}){until}: iris loop show")
