"""Run many slow operations concurrently in threads, and return the results as they arrive."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.errors import IrisError

T = TypeVar("T")
R = TypeVar("R")

PARALLELISM = 128  # more threads would only wait for the interpreter lock
LINGER = 0.05  # seconds


class FanOut(Protocol[R]):
    """A set of concurrent operations. One thread calls the methods, and other threads run the operations."""

    def submit(self, act: Callable[[], R]) -> None:
        """Queue `act`. It starts at once unless the maximum number of operations is running.

        Raises IrisError if no thread can be started. Then `act` is not queued.
        """
        ...

    def take(self, patience: float | None = None) -> list[R]:
        """Return the results that have arrived.

        If no result has arrived, wait at most `patience` seconds (None: no limit). The list is empty if no result
        arrived in that time, or no operation is running. If an `act` raised an exception, raise the exception after all
        results that arrived earlier have been taken.
        """
        ...

    def close(self) -> None:
        """Start no more operations. Don't wait for running operations, and discard their results."""
        ...


_MAX_WAIT = 0.5
"""Maximum duration in seconds of one wait (see `Threads._next`)."""


class _Raised(Struct, frozen=True):
    error: BaseException


class Threads(Generic[R]):
    """A FanOut with at most `parallelism` daemon threads, which never delay the exit of the interpreter.

    `take` returns the results that arrive within `linger` seconds of the first one.
    """

    def __init__(self, parallelism: int = PARALLELISM, *, linger: float = LINGER) -> None:
        self._max_threads = max(parallelism, 1)
        self._linger = linger
        self._queue: SimpleQueue[Callable[[], R] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[R | _Raised] = SimpleQueue()
        self._received: deque[R | _Raised] = deque()
        self._threads = 0
        self._outstanding = 0  # operations submitted whose results have not been received

    def submit(self, act: Callable[[], R]) -> None:
        self._outstanding += 1
        self._queue.put(act)  # BEFORE the thread starts, so that it need not wait
        if self._threads < min(self._max_threads, self._outstanding):
            try:
                threading.Thread(target=self._work, name="iris-fan-out", daemon=True).start()
            except RuntimeError as error:  # the limit of processes; the threads there are do the work
                if not self._threads:
                    self._queue.get()
                    self._outstanding -= 1
                    raise IrisError(
                        "no thread can be started on this machine",
                        hint="raise its limits: ulimit -u, ulimit -v",
                    ) from error
            else:
                self._threads += 1

    def take(self, patience: float | None = None) -> list[R]:
        if not self._received:
            self._collect(patience)
        taken: list[R] = []
        while self._received:
            outcome = self._received.popleft()
            if isinstance(outcome, _Raised):
                if taken:
                    self._received.appendleft(outcome)
                    break
                raise outcome.error
            taken.append(outcome)
        return taken

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._queue.get_nowait()
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = self._outstanding = 0

    def _work(self) -> None:
        while (act := self._queue.get()) is not None:
            try:
                self._outcomes.put(act())
            except BaseException as error:  # noqa: BLE001,RUF100 - raised again in the thread that takes the results
                self._outcomes.put(_Raised(error))

    def _next(self, wait: float | None) -> R | _Raised:
        """Return the next outcome. Raises Empty after `wait` seconds (None: no limit).

        Waits in short steps, because a signal just before a wait does not interrupt it, and Ctrl-C would be delayed.
        """
        end = None if wait is None else SYSTEM_CLOCK.monotonic() + wait
        while True:
            remaining = _MAX_WAIT if end is None else min(_MAX_WAIT, end - SYSTEM_CLOCK.monotonic())
            try:
                return self._outcomes.get(timeout=max(0.0, remaining))
            except Empty:
                if remaining < _MAX_WAIT:
                    raise

    def _collect(self, patience: float | None) -> None:
        """Wait for an outcome, then for more until `linger` seconds have passed."""
        until = None
        while self._outstanding:
            wait = patience if until is None else max(0.0, until - SYSTEM_CLOCK.monotonic())
            try:
                self._received.append(self._next(wait))
            except Empty:
                return
            self._outstanding -= 1
            until = until or SYSTEM_CLOCK.monotonic() + self._linger


def batches(
    threads: FanOut[tuple[T, R | _Raised]],
    items: Sequence[T],
    act: Callable[[T], R],
    patience: float | None = None,
) -> Iterator[list[tuple[T, R]]]:
    """Yield `(item, act(item))` for all items, in batches as the operations finish. Then close `threads`.

    `act` should return errors as results. After an exception the other operations continue, and the first exception is
    raised after all results. Stops early if no result arrived for `patience` seconds. If the iteration stops early, for
    example by Ctrl-C, no more operations start. The running ones are abandoned, and do not delay the exit of the
    interpreter.
    """

    def run(item: T) -> tuple[T, R | _Raised]:
        try:
            return item, act(item)
        except BaseException as error:  # noqa: BLE001,RUF100 - raised below, after all results were delivered
            return item, _Raised(error)

    failure: _Raised | None = None
    missing = len(items)
    try:
        for item in items:
            threads.submit(lambda item=item: run(item))  # type: ignore[misc]  # the default binds the item
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
