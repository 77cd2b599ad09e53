"""How long this machine stood still: what a test must not blame on the code that it times."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_NAP = 0.01


class Stalls:
    """Notes how much later than it asked for a thread is woken, again and again."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    def since(self, start: float) -> float:
        """Seconds lost since `start` (monotonic)."""
        return sum(late for at, late in list(self._late) if at >= start)

    def watch(self, ended: threading.Event) -> None:
        while not ended.is_set():
            before = time.monotonic()
            time.sleep(_NAP)
            now = time.monotonic()
            self._late.append((now, now - before - _NAP))


@contextmanager
def stalls() -> Iterator[Stalls]:
    """Watches for the length of a block."""
    found, ended = Stalls(), threading.Event()
    thread = threading.Thread(target=found.watch, args=(ended,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
