"""Progress of slow steps, polled by the display in its own thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

Far: TypeAlias = tuple[str, int, int, str]
"""Step in progress, amount done, total (0: unknown), and the noun for a unit.

The noun `bytes` is for sizes; without a noun only the text is shown. Empty text: show nothing yet.
"""

HowFar: TypeAlias = Callable[[], Far]
"""Function that returns the progress. Called in another thread without a lock; values may be inconsistent."""

Progress: TypeAlias = Callable[[HowFar], AbstractContextManager[None]]
"""Context manager around a slow step; it is given the step's HowFar."""
