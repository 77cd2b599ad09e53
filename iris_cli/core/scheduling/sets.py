"""Sets of workers as integers, workers by available amount, and groups of workers that share an attribute.

In a cycle, each worker has a position: its index in the list of all workers, ordered by id. A set of workers is an
integer whose bit n is 1 if the set contains the worker at position n. So one `&` finds the workers that satisfy the
constraints and have 16 free cores, and the first worker of a set is its lowest bit.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from iris_cli.core import AttributeValue, Worker
from iris_cli.core.attributes import TPU_VM_COUNT_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY, int_attribute
from iris_cli.core.scheduling.reasons import ReasonKind


def mask_of(positions: Sequence[int]) -> int:
    """Return the set of the workers at these positions. The positions must be distinct."""
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
    """Yield the positions of the workers in a set, in ascending order."""
    bits = bin(mask)[:1:-1]
    position = bits.find("1")
    while position >= 0:
        yield position
        position = bits.find("1", position + 1)


def flags_of(mask: int, all_workers: int) -> str:
    """Return a text with `"1"` at the position of each worker in the set. It is faster to look up than a bit."""
    return bin(mask | all_workers + 1)[:2:-1]


def first_of(mask: int) -> int:
    """Return the lowest position in a set, which must not be empty."""
    return (mask & -mask).bit_length() - 1


AMOUNT_KINDS = (ReasonKind.CPU, ReasonKind.MEMORY, ReasonKind.GPUS, ReasonKind.CHIPS)
"""The kind of reason for each missing amount, in the order of the fields of `Amounts`."""


class Levels:
    """The workers that have each amount of one resource, the largest amount first."""

    __slots__ = ("_levels",)

    def __init__(self, pairs: Iterable[tuple[int, Sequence[int]]]) -> None:
        """Each of `pairs` is an amount and the positions of workers with it. Several pairs may have the same amount."""
        positions: dict[int, list[int]] = {}
        for amount, found in pairs:
            positions.setdefault(amount, []).extend(found)
        self._levels = [(amount, mask_of(positions[amount])) for amount in sorted(positions, reverse=True)]

    def largest(self, workers: int) -> int:
        """Return the largest amount that one of these workers has; 0 without workers."""
        return next((amount for amount, owners in self._levels if owners & workers), 0)

    def workers_with_at_least(self, needs: Iterable[int]) -> dict[int, int]:
        """Return, for each needed amount, the workers that have it. `needs` must be in descending order."""
        found: dict[int, int] = {}
        workers = used = 0
        for need in needs:
            while used < len(self._levels) and self._levels[used][0] >= need:
                workers |= self._levels[used][1]
                used += 1
            found[need] = workers
        return found


class Dimension:
    """One resource: for each amount that tasks need, the workers with at least that amount free.

    `workers_at_start` has these workers at the start of the cycle, `workers_now` after the placements so far. `levels`
    has all free amounts at the start.
    """

    __slots__ = ("_needs", "levels", "workers_at_start", "workers_now")

    def __init__(self, levels: Levels, needs: Iterable[int], all_workers: int) -> None:
        self._needs = sorted(dict.fromkeys(need for need in needs if need > 0))
        self.levels = levels
        self.workers_at_start = {0: all_workers, **levels.workers_with_at_least(reversed(self._needs))}
        self.workers_now = dict(self.workers_at_start)

    def shrink(self, position: int, before: int, after: int) -> None:
        """Record that the free amount of a worker fell from `before` to `after`."""
        needs = self._needs
        for need in needs[bisect_right(needs, after) : bisect_right(needs, before)]:
            self.workers_now[need] ^= 1 << position


class Group(NamedTuple):
    """Workers that share the value `key` of an attribute. `number` is the group's index in `GroupIndex.groups`.

    `members` are the positions of the workers, in the order of their numbers in the slice; `mask` is their set.
    `whole`: the group is a complete slice, whose workers are numbered 0 to n-1.
    """

    number: int
    key: AttributeValue
    members: tuple[int, ...]
    mask: int
    whole: bool


class GroupIndex:
    """All groups of one attribute, ordered by type and value of the attribute: `1` and `"1"` are different groups.

    `numbers` has the number of the group of each worker, by position; -1 for a worker without the attribute.
    """

    def __init__(self, workers: Sequence[Worker], members: Mapping[AttributeValue, list[int]]) -> None:
        self.groups: list[Group] = []
        self.numbers: list[int] = [-1] * len(workers)
        ids = [worker_number(worker) for worker in workers]
        ranks = [(number is None, number or 0) for number in ids]
        for index, key in enumerate(sorted(members, key=lambda key: (type(key.value).__name__, key))):
            positions = members[key]
            ranked = tuple(sorted(positions, key=ranks.__getitem__))
            complete = [ids[position] for position in ranked] == list(range(len(ranked)))
            whole = complete and all(vm_count(workers[each]) in (None, len(ranked)) for each in ranked)
            self.groups.append(Group(index, key, ranked, mask_of(positions), whole))
            for position in positions:
                self.numbers[position] = index


Rank = tuple[int, ...]
"""The rank of a group, or of a set of groups: the sum of their ranks. A lower rank is better."""

Ranker = Callable[[Group], Rank | None]
"""Function that returns the rank of a group, or None if the gang does not fit on it."""

RankedSet = tuple[Rank, list[int]]
"""The rank of a set of groups, and the numbers of the groups."""


class _Site:
    """Groups that a gang may use together.

    `heap` has the numbers of the groups with their current and earlier ranks. `best`: the best set, None if unknown.
    """

    __slots__ = ("best", "heap")

    def __init__(self, groups: Iterable[int], ranks: Sequence[Rank | None]) -> None:
        self.heap = [(rank, number) for number in groups if (rank := ranks[number]) is not None]
        heapify(self.heap)
        self.best: RankedSet | None = None

    def best_set(self, count: int, ranks: Sequence[Rank | None]) -> RankedSet | None:
        """Return the `count` best groups, or None if there are fewer. `ranks`: the current rank of each group."""
        if self.best is None:
            found: list[tuple[Rank, int]] = []
            while self.heap and len(found) < count:
                entry = heappop(self.heap)
                if ranks[entry[1]] is entry[0]:  # otherwise it is an earlier rank of the group
                    found.append(entry)
            for entry in found:
                heappush(self.heap, entry)
            if len(found) == count:
                rank = tuple(map(sum, zip(*(rank for rank, _ in found), strict=True)))
                self.best = rank, sorted(number for _, number in found)
        return self.best


class GroupQueue:
    """Finds the best set of groups for a gang repeatedly, while the free room of workers shrinks.

    Only groups with changed workers are ranked again. Of sets with equal ranks, the lowest group numbers are best.
    """

    def __init__(
        self,
        index: GroupIndex,
        changes: Sequence[tuple[int, object]],
        ranker: Callable[[], Ranker],
        tiers: Iterable[Iterable[Sequence[int]]],
    ) -> None:
        """Rank all groups.

        `changes`: the positions of changed workers (the second part is ignored). The list grows during the cycle.
        `ranker()` returns a Ranker that is correct until the next change. `tiers` contain sites, each a list of group
        numbers. All groups of a set are at one site.
        """
        self._index = index
        self._changes = changes
        self._changes_seen = len(changes)
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

    def best_set(self, count: int, *, by_tier: bool = False) -> list[Group] | None:
        """Return the best set of `count` groups, or None. `by_tier`: use only the first tier that has a set."""
        self._update_ranks()
        found: list[tuple[Rank, int, list[int]]] = []
        for number, tier in enumerate(self._tiers):
            sets = (site.best_set(count, self._ranks) for site in tier)
            found += [(best[0], number, best[1]) for best in sets if best is not None]
            if found and by_tier:
                break
        return [self._index.groups[number] for number in min(found)[-1]] if found else None

    def _update_ranks(self) -> None:
        if self._changes_seen == len(self._changes):
            return
        changed = dict.fromkeys(self._index.numbers[at] for at, _ in self._changes[self._changes_seen :])
        self._changes_seen = len(self._changes)
        rank = self._ranker()
        for number in changed:
            if number < 0:
                continue
            found = self._ranks[number] = rank(self._index.groups[number])
            for site in self._sites_of[number]:
                site.best = None
                if found is not None:
                    heappush(site.heap, (found, number))


def vm_count(worker: Worker) -> int | None:
    """Return the number of workers in the worker's slice, or None if the worker does not report the number."""
    return int_attribute(worker.attributes, TPU_VM_COUNT_ATTRIBUTE_KEY)


def worker_number(worker: Worker) -> int | None:
    """Return the worker's number in its slice, or None if it has no integer number."""
    return int_attribute(worker.attributes, TPU_WORKER_ID_ATTRIBUTE_KEY)
