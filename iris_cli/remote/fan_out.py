"""Run many slow operations concurrently in threads; results are taken as they arrive."""

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

PARALLELISM = 128  # with more, threads wait for the interpreter lock, not for the network
LINGER = 0.05  # seconds


class FanOut(Protocol[R]):
    """A set of concurrent operations. One thread submits and takes; only the operations run in others."""

    def submit(self, act: Callable[[], R]) -> None:
        """Queue `act`; it starts at once unless the maximum number is already running."""
        ...

    def take(self, patience: float | None = None) -> list[R]:
        """Return the results that have arrived; if there are none, wait for the next ones.

        Waits up to `patience` seconds for the first result (None: without limit). Empty if none arrived or nothing is
        running. An exception of an `act` is raised after all results before it were taken.
        """
        ...

    def close(self) -> None:
        """Start nothing more and do not wait: results of operations that still run are discarded."""
        ...


_LONGEST_WAIT = 0.5
"""Longest single wait in seconds."""


class _Raised(Struct, frozen=True):
    error: BaseException


class Threads(Generic[R]):
    """A FanOut with at most `parallelism` daemon threads: they never delay the exit of the interpreter.

    A batch holds the results that arrive within `linger` seconds of the first one.
    """

    def __init__(self, parallelism: int = PARALLELISM, *, linger: float = LINGER) -> None:
        self._most = max(parallelism, 1)
        self._linger = linger
        self._waiting: SimpleQueue[Callable[[], R] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[R | _Raised] = SimpleQueue()
        self._arrived: deque[R | _Raised] = deque()
        self._threads = 0
        self._missing = 0  # submitted and not yet arrived

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
            except BaseException as error:  # noqa: BLE001,RUF100 - raised again in the thread that takes the results
                self._outcomes.put(_Raised(error))

    def _next(self, wait: float | None) -> R | _Raised:
        """Return the next outcome. Raises Empty.

        Waits in short steps: a signal that arrives just before a thread starts to wait does not wake it, and Ctrl-C
        must never be lost.
        """
        end = None if wait is None else SYSTEM_CLOCK.monotonic() + wait
        while True:
            left = _LONGEST_WAIT if end is None else min(_LONGEST_WAIT, end - SYSTEM_CLOCK.monotonic())
            try:
                return self._outcomes.get(timeout=max(0.0, left))
            except Empty:
                if left < _LONGEST_WAIT:
                    raise

    def _collect(self, patience: float | None) -> None:
        """Wait for one outcome, then for others that follow soon."""
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

    At most `parallelism` run at a time, the first ones when the first result is requested. `act` should return its
    errors as results; an exception stops no other item, and the first one is raised after all results were delivered.
    If iteration stops early (Ctrl-C included), no further item starts and running ones are not awaited, not even at
    interpreter exit.
    """
    for batch in batches(Threads(parallelism, linger=0.0), items, act):
        yield from batch


def batches(
    threads: FanOut[tuple[T, R | _Raised]],
    items: Sequence[T],
    act: Callable[[T], R],
    patience: float | None = None,
) -> Iterator[list[tuple[T, R]]]:
    """Yield the results of all items in batches, then close `threads`.

    A slow host thus delays no result of the others. Stops early if no result arrived for `patience` seconds.
    """

    def one(item: T) -> tuple[T, R | _Raised]:
        try:
            return item, act(item)
        except BaseException as error:  # noqa: BLE001,RUF100 - raised below, after all results were delivered
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
