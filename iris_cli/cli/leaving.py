"""The end of a command that leaves open work: the background loop starts, or the command prints why no cycle comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from iris_cli.errors import IrisError
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.ops.session import Session
    from iris_cli.ops.workplace import Workplace

_BY_HAND = "jobs stay pending until you run: iris watch --schedule, or iris cron install"


def see_to_cycles(
    where: Workplace, output: Output, session: Session, why_no_cycle: Callable[[], str], *, told: bool
) -> None:
    """Start the loop if it is needed, and print its pid; print why no cycle comes unless the command has `told` that.

    A failure is one warning, never an error of the command.
    """
    from iris_cli.ops.loop.automatic import start_if_needed
    from iris_cli.ops.loop.start import logins_kill
    from iris_cli.ops.views.cycles import work_left

    try:
        pid = start_if_needed(where, session)
        ends = pid is not None and logins_kill(os.environ)
        is_left = pid is None and not told and work_left(session.view(), session.config, session.state)
    except (OSError, IrisError) as error:
        if why := why_no_cycle():
            if not told:
                output.warning(why)
            return
        words = error.message if isinstance(error, IrisError) else error.strerror or str(error)
        output.warning(f"warning: the background loop failed to start: {words}; {_BY_HAND}")
        return
    if pid is not None:
        until = ", ends when you log out (to keep it: loginctl enable-linger)" if ends else ""
        output.message(f"background loop started (pid {pid}){until}: iris loop show")
    elif is_left and (why := why_no_cycle()):
        output.message(why)
