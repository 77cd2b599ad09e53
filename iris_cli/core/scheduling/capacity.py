"""Sets of workers as integers, and which of them have enough of something.

A worker is known by its position: 0 upwards in the order of worker ids. A set of workers is an integer with
one bit for each position, so that "fits the constraints and has 16 cores left" is one `&` however large the
fleet is, and the first worker of a set is its lowest bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from iris_cli.core.scheduling.reasons import ReasonKind


def mask_of(positions: Sequence[int]) -> int:
    """The set of these positions, none of which comes twice."""
    if not positions:
        return 0
    first, last = min(positions), max(positions)
    if last - first == len(positions) - 1:  # as in a slice
        return (1 << len(positions)) - 1 << first
    bits = bytearray((last >> 3) + 1)
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(bits, "little")


def positions_of(mask: int) -> Iterator[int]:
    """The members of a set, in ascending order."""
    bits = bin(mask)[:1:-1]
    position = bits.find("1")
    while position >= 0:
        yield position
        position = bits.find("1", position + 1)


def flags_of(mask: int, everyone: int) -> str:
    """The set as text, `"1"` at the index of each member: for looking positions up one by one."""
    return bin(mask | everyone + 1)[:2:-1]


def first_of(mask: int) -> int:
    """The lowest position in a set that isn't empty."""
    return (mask & -mask).bit_length() - 1


AMOUNT_KINDS = (ReasonKind.CPU, ReasonKind.MEMORY, ReasonKind.GPUS, ReasonKind.CHIPS)
"""The kinds of reason that speak of amounts, in the order of `Amounts`."""


class Levels:
    """Who has how much: the workers by amount, the largest amount first."""

    __slots__ = ("_levels",)

    def __init__(self, holders: Iterable[tuple[int, Sequence[int]]]) -> None:
        """From amounts and the positions of those who have them; an amount may come several times."""
        positions: dict[int, list[int]] = {}
        for amount, those in holders:
            positions.setdefault(amount, []).extend(those)
        self._levels = [(amount, mask_of(positions[amount])) for amount in sorted(positions, reverse=True)]

    def most(self, workers: int) -> int:
        """The largest amount that one of these workers has; 0 where there are none."""
        return next((amount for amount, those in self._levels if those & workers), 0)

    def reaching(self, needs: Iterable[int]) -> dict[int, int]:
        """For each of these amounts the workers that have it or more. `needs` are in descending order."""
        found: dict[int, int] = {}
        who = used = 0
        for need in needs:
            while used < len(self._levels) and self._levels[used][0] >= need:
                who |= self._levels[used][1]
                used += 1
            found[need] = who
        return found


class Dimension:
    """One resource: for each amount that anybody asks for, who has it, at the start of the cycle and now."""

    __slots__ = ("_needs", "at_start", "levels", "now")

    def __init__(self, levels: Levels, needs: Iterable[int], everyone: int) -> None:
        self._needs = sorted(dict.fromkeys(need for need in needs if need > 0))
        self.levels = levels  # at the start of the cycle
        self.at_start = {0: everyone, **levels.reaching(reversed(self._needs))}
        self.now = dict(self.at_start)

    def shrink(self, position: int, before: int, after: int) -> None:
        """A worker has less now: it leaves the sets of those who have what it no longer has."""
        needs = self._needs
        for need in needs[bisect_right(needs, after) : bisect_right(needs, before)]:
            self.now[need] ^= 1 << position
