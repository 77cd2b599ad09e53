"""Threads that are kept for what is next: to make one costs a tenth of what a call costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], object]


class SpareThreads:
    """As many as were ever needed at the same time. They keep nobody from leaving, not even the interpreter."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work]] = []

    def do(self, work: Work) -> None:
        """Begin at once, and don't wait."""
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = SimpleQueue()
            threading.Thread(target=self._serve, args=(thread,), name="iris-ssh-call", daemon=True).start()
        thread.put(work)

    def _serve(self, thread: SimpleQueue[Work]) -> None:
        while True:
            thread.get()()
            self._idle.append(thread)


SPARE = SpareThreads()
