"""Pauses of Python's cyclic garbage collector during functions that create many objects and drop few."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SELDOM = 50_000  # objects, as in `__main__`


def at_rest(act: Callable[P, R]) -> Callable[P, R]:
    """Pause the collector while the function runs. Records form no cycles, and each collection visits all of them.

    The next collection runs after as many new objects as exist now, not at once.
    """

    @wraps(act)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        was_searching = gc.isenabled()
        gc.disable()
        try:
            return act(*args, **kwargs)
        finally:
            if was_searching:
                gc.set_threshold(2 * gc.get_count()[0] + _SELDOM)
                gc.enable()

    return quietly
