"""Send stops, and nothing else."""

from __future__ import annotations

from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.session import Session


def send_stops(session: Session) -> None:
    """Send the stops that the log asks for once, and see what comes of them."""
    with Dispatcher(session) as dispatcher:
        dispatcher.begin(ask=False)
        dispatcher.attend()
