"""Wait for events, never for fixed times: a loaded machine may be 20 times slower than an idle one."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds until a missing event fails the test. No test depends on this value."""

LIMITS = (0.5, 2.0, 8.0, 32.0, 128.0)
"""Time limits in seconds to try in turn, until the tested program gets far enough before the limit.

The first ones keep tests short; the last ones suffice on any machine.
"""


def until(
    happened: Callable[[], object],
    seen: Callable[[], object] = lambda: "nothing",
    between: Callable[[], object] = lambda: None,
) -> None:
    """Return as soon as `happened()` is true. If it never is, fail with what was `seen()` last.

    `between` is called after each time that it is not.
    """
    first, pause = time.monotonic(), 0.01
    while True:
        began = time.monotonic()
        if happened():
            return
        assert began < first + PATIENCE, f"not within {PATIENCE:g} s; last seen: {seen()}"
        between()
        # Pause longer after slow checks, which take CPU time from the awaited processes.
        took = time.monotonic() - began
        time.sleep(max(pause, min(8 * took, 0.5), min(4 * took, 2.0)))
        pause = min(1.3 * pause, 0.1)
