"""The only module that draws random numbers."""

import os
from typing import Final, Protocol

_BITS = 53  # the precision of a float


class Randomness(Protocol):
    """A source of random numbers."""

    def hexadecimal(self, size: int) -> str:
        """Return `size` unpredictable bytes as hexadecimal digits."""
        ...

    def between(self, low: float, high: float) -> float:
        """Return a number from `low` up to, but not including, `high`."""
        ...


class SystemRandomness:
    """The random numbers of the kernel."""

    def hexadecimal(self, size: int) -> str:
        return os.urandom(size).hex()

    def between(self, low: float, high: float) -> float:
        drawn = int(self.hexadecimal(8), 16) >> (64 - _BITS)
        return low + (high - low) * drawn / (1 << _BITS)


SYSTEM_RANDOMNESS: Final = SystemRandomness()
"""Random numbers for names, nonces and keys. Decisions use the session's randomness, which tests seed."""
