"""One phase of an attempt for each of its states, for tests that only need the state."""

from __future__ import annotations

from iris_cli.core.model.task import (
    Assigned,
    AttemptState,
    End,
    Ended,
    EndReason,
    Phase,
    Running,
    StopOrder,
    Stopping,
)

ASSIGNED = Assigned()
RUNNING = Running(started_at=1.0)
STOPPING = Stopping(order=StopOrder(reason=EndReason.SIBLING, at=2.0), before=RUNNING)
ENDED = Ended(end=End(reason=EndReason.OK), at=3.0, before=RUNNING)

PHASES: dict[AttemptState, Phase] = {each.state: each for each in (ASSIGNED, RUNNING, STOPPING, ENDED)}
