"""Threads that are kept for what is next: to make one costs a tenth of a call on an open connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

Work = Callable[[], object]


class SpareThreads:
    """As many as were ever needed at the same time. They keep nobody from leaving, not even the interpreter."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work | None]] = []

    def do(self, work: Work) -> None:
        """Begin at once, and don't wait."""
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = SimpleQueue()
            threading.Thread(target=self._serve, args=(thread,), name="iris-ssh-call", daemon=True).start()
        thread.put(work)

    def close(self) -> None:
        """End those that have nothing to do."""
        with suppress(IndexError):
            while True:
                self._idle.pop().put(None)

    def _serve(self, thread: SimpleQueue[Work | None]) -> None:
        while (work := thread.get()) is not None:
            work()
            self._idle.append(thread)
