"""Pause Python's cyclic garbage collector during functions that create many objects and delete few."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MIN_THRESHOLD = 50_000  # objects, as in `__main__`


def gc_paused(act: Callable[P, R]) -> Callable[P, R]:
    """Pause the collector while `act` runs, and raise its threshold, so that it does not run directly after `act`.

    A collection would visit all records, which form no reference cycles.
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
