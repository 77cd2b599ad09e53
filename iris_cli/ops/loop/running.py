"""Be seen as a process that runs cycles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_cli.ops.session import Session


@contextmanager
def running(session: Session, kind: str, *, interval: float) -> Iterator[None]:
    """Hold the lock of a runner of this kind, which runs a cycle every `interval` seconds, while the block lasts.

    Where no lock can be had (a read-only directory, a full disk) the block runs without one.
    """
    held = None
    with suppress(OSError):
        held = session.state.runners.hold(kind, session.command, interval=interval, since=session.clock.now())
    before = session.runs_as, session.recorded
    said = {"pid": os.getpid(), "interval": interval}
    session.runs_as, session.recorded = kind, lambda: said
    try:
        yield
    finally:
        session.runs_as, session.recorded = before
        if held is not None:
            held.release()
