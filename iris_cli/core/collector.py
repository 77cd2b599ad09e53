"""The interpreter's search for unreachable cycles, held back while much is made and nothing dropped."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def at_rest(act: Callable[P, R]) -> Callable[P, R]:
    """Don't search while the function runs. Records form no cycles, and each search looks at all that there are."""

    @wraps(act)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        was_searching = gc.isenabled()
        gc.disable()
        try:
            return act(*args, **kwargs)
        finally:
            if was_searching:
                gc.enable()

    return quietly
