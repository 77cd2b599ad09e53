"""Decorators: pause the garbage collector while a function runs, and cache the results of a method in its object."""

import gc
from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
A = TypeVar("A", bound=Hashable)
R = TypeVar("R")

_MIN_THRESHOLD = 50_000  # objects, as in `__main__`


def gc_paused(act: Callable[P, R]) -> Callable[P, R]:
    """Pause the cyclic garbage collector while `act` runs, for functions that create many objects and delete few.

    Then raise its threshold, so that it does not run directly after `act`. A collection would visit all records, which
    form no reference cycles.
    """

    @wraps(act)
    def paused(*args: P.args, **kwargs: P.kwargs) -> R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return act(*args, **kwargs)
        finally:
            if was_enabled:
                gc.set_threshold(2 * gc.get_count()[0] + _MIN_THRESHOLD)
                gc.enable()

    return paused


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
