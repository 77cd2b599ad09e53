"""Do the same to many hosts at once; hand over each result as it comes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

PARALLELISM = 128  # more threads than this only wait for the interpreter lock, and time out falsely


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
    for batch in fan_out_in_batches(items, act, parallelism=parallelism, linger=0.0):
        yield from batch


def fan_out_in_batches(
    items: Sequence[T], act: Callable[[T], R], *, parallelism: int = PARALLELISM, linger: float = 0.05
) -> Iterator[list[tuple[T, R]]]:
    """The same in batches: what has finished within `linger` seconds of the first result of a batch.

    One slow host then holds up nothing that is already known of the others.
    """
    waiting = deque(items)
    outcomes: SimpleQueue[tuple[T, R] | BaseException] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                item = waiting.popleft()
            except IndexError:
                return
            try:
                outcomes.put((item, act(item)))
            except BaseException as error:  # noqa: BLE001,RUF100 - handed over to whoever asked, below
                outcomes.put(error)

    failure: BaseException | None = None
    missing = len(items)
    try:
        for _ in range(min(max(parallelism, 1), len(items))):
            threading.Thread(target=work, name="iris-fan-out", daemon=True).start()
        while missing:
            arrived = _arrivals(outcomes, missing, linger)
            missing -= len(arrived)
            failure = failure or next((each for each in arrived if isinstance(each, BaseException)), None)
            batch = [each for each in arrived if not isinstance(each, BaseException)]
            if batch:
                yield batch
    finally:
        waiting.clear()
    if failure is not None:
        raise failure


def _arrivals(outcomes: SimpleQueue[T], missing: int, linger: float) -> list[T]:
    """Wait for one outcome, then take what else comes soon; at most `missing`."""
    arrived = [outcomes.get()]
    until = time.monotonic() + linger
    while len(arrived) < missing:
        try:
            arrived.append(outcomes.get(timeout=max(0.0, until - time.monotonic())))
        except Empty:
            break
    return arrived
