"""Tell what waits to be told, beside what the invocation does otherwise, and write down what got through."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from threading import Event

from msgspec import Struct, field, structs

from iris_cli.clock import Clock
from iris_cli.core.messages.notices import Books, Notice
from iris_cli.core.model.limits import Limits
from iris_cli.journal.files.notices import NoticeFile

BUDGET = 10.0
"""Seconds after which no other notice is begun: the next cycle goes on."""

_WRITTEN_EVERY = 1.0  # seconds: so much is told again after a crash

Send = Callable[[Notice, Event], str]
"""Tells one notice; what went wrong comes back in words, or "". The event is set when nobody waits any longer."""


class Teller(Struct):
    """Has the lock `lock`, under which one invocation at a time tells, and lets it go at the end."""

    file: NoticeFile
    lock: int
    books: Books
    channels: Mapping[str, Send]
    clock: Clock
    limits: Limits
    budget: float = BUDGET
    cut: Event = field(default_factory=Event)
    _written: float = 0.0

    def run(self) -> None:
        """Tell for as long as the budget lasts. A channel that fails has to wait, and lets the others go first."""
        try:
            until = self.clock.monotonic() + self.budget
            self._written = self.clock.monotonic()
            for name in sorted(self.channels, key=lambda each: self.books.channels[each].failures):
                while self._is_due(name) and self.clock.monotonic() < until and not self.cut.is_set():
                    self._tell_one(name)
            self.file.write(self.books)
        finally:
            os.close(self.lock)

    def _is_due(self, name: str) -> bool:
        return self.books.channels[name].is_due(self.clock.now())

    def _tell_one(self, name: str) -> None:
        channel = self.books.channels[name]
        try:
            trouble = self.channels[name](channel.waiting[0], self.cut)
        except (
            Exception
        ) as error:  # a fault of ours: it must not end the thread, and is seen where others are
            trouble = f"internal error ({type(error).__name__}); please report it"
        if trouble and self.cut.is_set():
            return  # that was us
        now = self.clock.now()
        after = channel.failed(trouble, now, self.limits) if trouble else channel.told(now)
        self.books = structs.replace(self.books, channels={**self.books.channels, name: after})
        # AFTER it was told: a crash in between has it told again, not lost.
        if self.clock.monotonic() - self._written >= _WRITTEN_EVERY:
            self.file.write(self.books)
            self._written = self.clock.monotonic()


_UNDER_WAY: list[tuple[Teller, threading.Thread]] = []


def start(teller: Teller) -> None:
    """Let it tell on a thread of its own; `finish` waits for it."""
    thread = threading.Thread(target=teller.run, name="iris-notify", daemon=True)
    _UNDER_WAY[:] = [each for each in _UNDER_WAY if each[1].is_alive()]
    _UNDER_WAY.append((teller, thread))
    thread.start()


def finish(*, at_once: bool = False) -> None:
    """Wait until all that was begun is told, or given up for now. Its time is bounded; Ctrl-C ends it at once."""
    while _UNDER_WAY:
        teller, thread = _UNDER_WAY.pop()
        try:
            if at_once:
                teller.cut.set()
            thread.join()
        except KeyboardInterrupt:
            teller.cut.set()
            thread.join()
            raise
