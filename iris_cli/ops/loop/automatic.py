"""Start the background loop if a command leaves open work and no cycles are running."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from iris_cli.config.schema import Mode
from iris_cli.journal.files.runners import LOOP, read_loop_order
from iris_cli.ops.views.cycles import cycles_of, work_left

if TYPE_CHECKING:
    from iris_cli.ops.session import Session
    from iris_cli.ops.workplace import Workplace

SWITCH = "IRIS_LOOP"
"""Environment variable: with the value `off`, no command starts a loop."""


def may_start(workplace: Workplace, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if a command may start the loop.

    Inside a task, no loop starts, because it would be stopped with the task. After `iris loop stop`, no loop starts.
    """
    if environ.get(SWITCH, "").strip().lower() == Mode.OFF or "IRIS_TASK_DIR" in environ:
        return False
    return workplace.config.loop is not Mode.OFF and not read_loop_order(workplace.state.path).stopped


def start_if_needed(workplace: Workplace, session: Session) -> int | None:
    """Start the loop if work is left and no cycles are running. Return its pid, or None. Raises OSError, IrisError."""
    if not may_start(workplace):
        return None
    if not work_left(session.view(), session.config, session.state):
        return None
    # Look for runners AFTER reading the log: a runner that ends releases its lock first, then reads the log a last
    # time.
    cycles = cycles_of(session.state, session.clock.now())
    if cycles.has_next_cycle or cycles.by == LOOP:  # a suspended loop keeps its lock
        return None
    from iris_cli.ops.loop.start import loop_command, spawn

    return spawn(loop_command(workplace))
