"""How far something is that may take long: asked now and then, by whoever shows it, in a thread of theirs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

Far: TypeAlias = tuple[str, int, int, str]
"""What is being done, how much of it is done, of how much (0: nobody knows), and the noun for one of it.

The noun `bytes` is for sizes; without any the words say it all. No words at all: there is nothing to say yet.
"""

HowFar: TypeAlias = Callable[[], Far]
"""Is asked in another thread, and takes no lock: what it reads may change meanwhile."""

Progress: TypeAlias = Callable[[HowFar], AbstractContextManager[None]]
"""Around what may take long; what it is given says at any moment how far that is."""
