"""Run many operations concurrently, and yield each result as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from iris_cli.remote.fan_out import PARALLELISM, Threads, batches

T = TypeVar("T")
R = TypeVar("R")


def fan_out(
    items: Sequence[T], act: Callable[[T], R], *, parallelism: int = PARALLELISM
) -> Iterator[tuple[T, R]]:
    """Yield `(item, act(item))` for each item, as the operations finish."""
    for batch in batches(Threads(parallelism, linger=0.0), items, act):
        yield from batch
