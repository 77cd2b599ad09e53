"""Sets of workers as integers, workers by available amount, and groups of workers that share an attribute.

A worker is identified by its position: 0 upwards in the order of worker ids. A set of workers is an integer with one
bit for each position, so "fits the constraints and has 16 cores left" is one `&` for any size of the fleet, and the
first worker of a set is its lowest bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from iris_cli.core.constraints import TPU_VM_COUNT_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.model.worker import Worker
from iris_cli.core.scheduling.reasons import ReasonKind


def mask_of(positions: Sequence[int]) -> int:
    """Return the set of these distinct positions."""
    if not positions:
        return 0
    first, last = min(positions), max(positions)
    if last - first == len(positions) - 1:  # consecutive, as in a slice
        return (1 << len(positions)) - 1 << first
    bits = bytearray((last >> 3) + 1)
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(bits, "little")


def positions_of(mask: int) -> Iterator[int]:
    """Yield the members of a set in ascending order."""
    bits = bin(mask)[:1:-1]
    position = bits.find("1")
    while position >= 0:
        yield position
        position = bits.find("1", position + 1)


def flags_of(mask: int, everyone: int) -> str:
    """Return the set as text with `"1"` at the index of each member. The text allows fast look-ups of positions."""
    return bin(mask | everyone + 1)[:2:-1]


def first_of(mask: int) -> int:
    """Return the lowest position in a set that isn't empty."""
    return (mask & -mask).bit_length() - 1


AMOUNT_KINDS = (ReasonKind.CPU, ReasonKind.MEMORY, ReasonKind.GPUS, ReasonKind.CHIPS)
"""The kinds of reason for missing amounts, in the order of `Amounts`."""


class Levels:
    """Workers by their amount of one resource, the largest amount first."""

    __slots__ = ("_levels",)

    def __init__(self, holders: Iterable[tuple[int, Sequence[int]]]) -> None:
        """Build the levels from pairs of an amount and positions of workers with it. Amounts may be repeated."""
        positions: dict[int, list[int]] = {}
        for amount, found in holders:
            positions.setdefault(amount, []).extend(found)
        self._levels = [(amount, mask_of(positions[amount])) for amount in sorted(positions, reverse=True)]

    def most(self, workers: int) -> int:
        """Return the largest amount of these workers; 0 without workers."""
        return next((amount for amount, having in self._levels if having & workers), 0)

    def reaching(self, needs: Iterable[int]) -> dict[int, int]:
        """Return, for each need, the workers with at least that amount. `needs` are in descending order."""
        found: dict[int, int] = {}
        workers = used = 0
        for need in needs:
            while used < len(self._levels) and self._levels[used][0] >= need:
                workers |= self._levels[used][1]
                used += 1
            found[need] = workers
        return found


class Dimension:
    """One resource: for each requested amount, the workers that have it at the start of the cycle, and now."""

    __slots__ = ("_needs", "at_start", "levels", "now")

    def __init__(self, levels: Levels, needs: Iterable[int], everyone: int) -> None:
        self._needs = sorted(dict.fromkeys(need for need in needs if need > 0))
        self.levels = levels  # at the start of the cycle
        self.at_start = {0: everyone, **levels.reaching(reversed(self._needs))}
        self.now = dict(self.at_start)

    def shrink(self, position: int, before: int, after: int) -> None:
        """Record that a worker has less now: remove it from the sets of amounts that it no longer has."""
        needs = self._needs
        for need in needs[bisect_right(needs, after) : bisect_right(needs, before)]:
            self.now[need] ^= 1 << position


class Group(NamedTuple):
    """A group with `members` in the order of their ranks. `whole`: a complete slice, with workers numbered 0 to n-1."""

    number: int
    key: AttributeValue
    members: tuple[int, ...]
    mask: int
    whole: bool


class GroupIndex:
    """All groups of one attribute, ordered by type and value of the attribute: `1` and `"1"` are different groups."""

    def __init__(self, workers: Sequence[Worker], members: Mapping[AttributeValue, list[int]]) -> None:
        self.groups: list[Group] = []
        self.at: list[int] = [-1] * len(workers)  # the group of each position, -1 for none
        numbers = [worker_number(worker) for worker in workers]
        ranks = [(number is None, number or 0) for number in numbers]
        for index, key in enumerate(sorted(members, key=lambda key: (type(key.value).__name__, key))):
            positions = members[key]
            ranked = tuple(sorted(positions, key=ranks.__getitem__))
            complete = [numbers[position] for position in ranked] == list(range(len(ranked)))
            whole = complete and all(vm_count(workers[each]) in (None, len(ranked)) for each in ranked)
            self.groups.append(Group(index, key, ranked, mask_of(positions), whole))
            for position in positions:
                self.at[position] = index


Rank = tuple[int, ...]
Ranker = Callable[[Group], Rank | None]
RankedSet = tuple[Rank, list[int]]


class _Site:
    """Groups that a gang may use together. `best`: the best set of the needed size, with its rank; None if unknown."""

    __slots__ = ("best", "heap")

    def __init__(self, groups: Iterable[int], ranks: Sequence[Rank | None]) -> None:
        self.heap = [(rank, number) for number in groups if (rank := ranks[number]) is not None]
        heapify(self.heap)
        self.best: RankedSet | None = None

    def first(self, count: int, ranks: Sequence[Rank | None]) -> RankedSet | None:
        """Return the `count` best groups, or None if there are fewer."""
        if self.best is None:
            found: list[tuple[Rank, int]] = []
            while self.heap and len(found) < count:
                entry = heappop(self.heap)
                if ranks[entry[1]] is entry[0]:  # otherwise the group has a newer rank
                    found.append(entry)
            for entry in found:
                heappush(self.heap, entry)
            if len(found) == count:
                rank = tuple(map(sum, zip(*(rank for rank, _ in found), strict=True)))
                self.best = rank, sorted(number for _, number in found)
        return self.best


class GroupQueue:
    """The sets of groups that a gang may use, by rank. The ranks are updated when workers change.

    `ranker()` returns a function that returns the rank of a group (lower is better; None: does not fit), valid until
    the next change. Only groups with changed workers are ranked again. The rank of a set is the sum of its groups'
    ranks; of sets with equal ranks, the set with the lowest group numbers is used.
    """

    def __init__(
        self,
        index: GroupIndex,
        changes: Sequence[tuple[int, object]],
        ranker: Callable[[], Ranker],
        tiers: Iterable[Iterable[Sequence[int]]],
    ) -> None:
        """Rank all groups. `tiers` contain sites, each a list of group numbers. A set has groups of one site only."""
        self._index = index
        self._changes = changes
        self._seen = len(changes)
        self._ranker = ranker
        rank = ranker()
        self._ranks = [rank(group) for group in index.groups]
        self._tiers: list[list[_Site]] = []
        self._sites_of: list[list[_Site]] = [[] for _ in index.groups]
        for tier in tiers:
            self._tiers.append([])
            for numbers in tier:
                site = _Site(numbers, self._ranks)
                self._tiers[-1].append(site)
                for number in numbers:
                    self._sites_of[number].append(site)

    def first(self, count: int, *, by_tier: bool = False) -> list[Group] | None:
        """Return the best set of `count` groups, or None. `by_tier`: only from the first tier that has such a set."""
        self._catch_up()
        found: list[tuple[Rank, int, list[int]]] = []
        for number, tier in enumerate(self._tiers):
            sets = (site.first(count, self._ranks) for site in tier)
            found += [(best[0], number, best[1]) for best in sets if best is not None]
            if found and by_tier:
                break
        return [self._index.groups[number] for number in min(found)[-1]] if found else None

    def _catch_up(self) -> None:
        if self._seen == len(self._changes):
            return
        touched = dict.fromkeys(self._index.at[position] for position, _ in self._changes[self._seen :])
        self._seen = len(self._changes)
        rank = self._ranker()
        for number in touched:
            if number < 0:
                continue
            found = self._ranks[number] = rank(self._index.groups[number])
            for site in self._sites_of[number]:
                site.best = None
                if found is not None:
                    heappush(site.heap, (found, number))


def vm_count(worker: Worker) -> int | None:
    """Return the number of workers in the slice as the worker reports it, or None."""
    return _integer(worker, TPU_VM_COUNT_ATTRIBUTE_KEY)


def worker_number(worker: Worker) -> int | None:
    """Return the worker's number in its slice, or None if it has no integer number."""
    return _integer(worker, TPU_WORKER_ID_ATTRIBUTE_KEY)


def _integer(worker: Worker, key: str) -> int | None:
    value = worker.attributes.get(key)
    return value.value if value is not None and isinstance(value.value, int) else None
