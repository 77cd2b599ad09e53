"""The size of a benchmark: full, or just enough to test the machinery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """`repeat` runs of each measurement, with sizes divided by `shrink`."""

    repeat: int = 7
    shrink: int = 1

    def of(self, size: int) -> int:
        """Return a size at this scale."""
        return max(4, size // self.shrink)


FULL = Scale()
TINY = Scale(repeat=1, shrink=1_000)
