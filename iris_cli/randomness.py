"""The only place that draws random numbers."""

from __future__ import annotations

import os
from typing import Final, Protocol

_BITS = 53  # as many as a float holds


class Randomness(Protocol):
    """Where random numbers come from."""

    def hexadecimal(self, size: int) -> str:
        """That many bytes that nobody can guess, as hexadecimal digits."""
        ...

    def between(self, low: float, high: float) -> float:
        """A number from `low` up to, but not including, `high`."""
        ...


class SystemRandomness:
    """The random numbers of the kernel."""

    def hexadecimal(self, size: int) -> str:
        return os.urandom(size).hex()

    def between(self, low: float, high: float) -> float:
        drawn = int(self.hexadecimal(8), 16) >> (64 - _BITS)
        return low + (high - low) * drawn / (1 << _BITS)


SYSTEM_RANDOMNESS: Final = SystemRandomness()
"""For names, nonces and keys: what they are decides nothing. What a session decides on draws from its own."""
