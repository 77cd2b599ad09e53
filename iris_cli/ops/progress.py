"""The progress of slow steps. The display polls it in a separate thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

ProgressState: TypeAlias = tuple[str, int, int, str]
"""Name of the step, units done, total units (0: unknown), and the noun for a unit.

If the noun is `bytes`, the numbers are shown as sizes. If the noun is '', only the name is shown. If the name is '',
nothing is shown.
"""

GetProgress: TypeAlias = Callable[[], ProgressState]
"""Function that returns the progress. It is called in another thread, so the values may be inconsistent."""

Progress: TypeAlias = Callable[[GetProgress], AbstractContextManager[None]]
"""Function that returns a context manager. While its block runs, the progress of the slow step is shown."""
