"""Do many slow things at once, each in a thread of its own; results are taken as they come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from iris_cli.clock import SYSTEM_CLOCK

T = TypeVar("T")
R = TypeVar("R")

PARALLELISM = 128  # with more, the threads wait for the interpreter and not for the network
LINGER = 0.05  # seconds


class FanOut(Protocol[R]):
    """Things under way. One strand submits and takes; what runs meanwhile is nobody's business."""

    def submit(self, act: Callable[[], R]) -> None:
        """Begin `act` as soon as its turn comes: at once, unless the most that may run at a time do."""
        ...

    def take(self, patience: float | None = None) -> list[R]:
        """Results that have come, and if none has, those that come next.

        Waits up to `patience` seconds for the first one (None: as long as it takes). Empty if none came, or
        if nothing is under way. What an `act` raised is raised here, after what came before it was taken.
        """
        ...

    def close(self) -> None:
        """Begin nothing more and wait for nothing: results of what still runs are thrown away."""
        ...


_GLANCE = 0.5
"""Seconds of the longest wait without looking up."""


class _Raised(Struct, frozen=True):
    error: BaseException


class Threads(Generic[R]):
    """A FanOut of at most `parallelism` threads, which keep nobody from leaving, not even the interpreter.

    A batch of results holds what has come within `linger` seconds of its first one.
    """

    def __init__(self, parallelism: int = PARALLELISM, *, linger: float = LINGER) -> None:
        self._most = max(parallelism, 1)
        self._linger = linger
        self._waiting: SimpleQueue[Callable[[], R] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[R | _Raised] = SimpleQueue()
        self._arrived: deque[R | _Raised] = deque()
        self._threads = 0
        self._missing = 0  # submitted, and not arrived yet

    def submit(self, act: Callable[[], R]) -> None:
        self._missing += 1
        self._waiting.put(act)
        if self._threads < min(self._most, self._missing):
            self._threads += 1
            threading.Thread(target=self._work, name="iris-fan-out", daemon=True).start()

    def take(self, patience: float | None = None) -> list[R]:
        if not self._arrived:
            self._collect(patience)
        taken: list[R] = []
        while self._arrived:
            outcome = self._arrived.popleft()
            if isinstance(outcome, _Raised):
                if taken:
                    self._arrived.appendleft(outcome)
                    break
                raise outcome.error
            taken.append(outcome)
        return taken

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        for _ in range(self._threads):
            self._waiting.put(None)
        self._threads = self._missing = 0

    def _work(self) -> None:
        while (act := self._waiting.get()) is not None:
            try:
                self._outcomes.put(act())
            except BaseException as error:  # noqa: BLE001,RUF100 - handed over to whoever takes the results
                self._outcomes.put(_Raised(error))

    def _next(self, wait: float | None) -> R | _Raised:
        """The next outcome. Raises Empty.

        A signal that comes just before a thread begins to wait doesn't wake it: so that Ctrl-C is never lost, no wait
        is a long one.
        """
        end = None if wait is None else SYSTEM_CLOCK.monotonic() + wait
        while True:
            left = _GLANCE if end is None else min(_GLANCE, end - SYSTEM_CLOCK.monotonic())
            try:
                return self._outcomes.get(timeout=max(0.0, left))
            except Empty:
                if left < _GLANCE:
                    raise

    def _collect(self, patience: float | None) -> None:
        """Wait for one outcome, then for what else comes soon."""
        until = None
        while self._missing:
            wait = patience if until is None else max(0.0, until - SYSTEM_CLOCK.monotonic())
            try:
                self._arrived.append(self._next(wait))
            except Empty:
                return
            self._missing -= 1
            until = until or SYSTEM_CLOCK.monotonic() + self._linger


def fan_out(
    items: Sequence[T], act: Callable[[T], R], *, parallelism: int = PARALLELISM
) -> Iterator[tuple[T, R]]:
    """Yield `(item, act(item))` for each item exactly once, in the order in which they finish.

    At most `parallelism` run at a time; the clock of an item starts when `act` is called for it, not before.
    `act` should turn what can go wrong into its result. What it raises nevertheless stops nobody else: the
    first exception is raised here after all other results were delivered. Nothing starts before the first
    result is asked for. Whoever stops iterating (Ctrl-C too) leaves at once: no further item is begun, and
    what already runs is not waited for, not even when the interpreter exits.
    """
    for batch in batches(Threads(parallelism, linger=0.0), items, act):
        yield from batch


def batches(
    threads: FanOut[tuple[T, R | _Raised]],
    items: Sequence[T],
    act: Callable[[T], R],
    patience: float | None = None,
) -> Iterator[list[tuple[T, R]]]:
    """The results of all items in batches, by a fan-out that is closed in the end.

    One slow host then holds up nothing that is already known of the others. It also ends if no result came for
    `patience` seconds.
    """

    def one(item: T) -> tuple[T, R | _Raised]:
        try:
            return item, act(item)
        except BaseException as error:  # noqa: BLE001,RUF100 - raised when all others were delivered, below
            return item, _Raised(error)

    failure: _Raised | None = None
    missing = len(items)
    try:
        for item in items:
            threads.submit(lambda item=item: one(item))  # type: ignore[misc]  # the default binds the item
        while missing:
            arrived = threads.take(patience)
            if patience is not None and not arrived:
                break
            missing -= len(arrived)
            batch = []
            for item, outcome in arrived:
                if isinstance(outcome, _Raised):
                    failure = failure or outcome
                else:
                    batch.append((item, outcome))
            if batch:
                yield batch
    finally:
        threads.close()
    if failure is not None:
        raise failure.error
