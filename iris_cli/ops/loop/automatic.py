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
"""Variable that keeps commands from starting a loop if set to `off`."""


def starts_by_itself(where: Workplace, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if a command may start the loop.

    No loop starts inside a task: it would be stopped with the task. `iris loop stop` holds until `iris loop start`.
    """
    if environ.get(SWITCH, "").strip().lower() == Mode.OFF or "IRIS_TASK_DIR" in environ:
        return False
    return where.config.loop is not Mode.OFF and not read_loop_order(where.state.path).stopped


def start_if_needed(where: Workplace, session: Session) -> int | None:
    """Start the loop if work is left and no cycles are running. Return its pid or None. Raises OSError, IrisError."""
    if not starts_by_itself(where):
        return None
    if not work_left(session.view(), session.config, session.state):
        return None
    # After reading the log: a runner that ends releases its lock before it reads the log for the last time.
    cycles = cycles_of(session.state, session.clock.now())
    if cycles.has_next_cycle or cycles.by == LOOP:  # a suspended loop keeps its lock
        return None
    from iris_cli.ops.loop.start import place_of, spawn

    return spawn(place_of(where))
