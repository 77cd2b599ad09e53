"""Cache the results of a method in its object, as `functools.cached_property` does for a property."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

S = TypeVar("S")
A = TypeVar("A", bound=Hashable)
R = TypeVar("R")


def cached_by_argument(method: Callable[[S, A], R]) -> Callable[[S, A], R]:
    """Compute the result of a method once for each argument. `functools.cache` would keep the object alive."""
    name = f"_cache_of_{method.__name__}"

    @wraps(method)
    def cached(self: S, argument: A) -> R:
        results: dict[A, R] = self.__dict__.setdefault(name, {})
        if argument not in results:
            results[argument] = method(self, argument)
        return results[argument]

    return cached
