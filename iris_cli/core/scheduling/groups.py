"""Groups: workers with an equal value of one attribute, normally the workers of one slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from iris_cli.core.constraints import TPU_VM_COUNT_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.model.worker import Worker
from iris_cli.core.scheduling.capacity import mask_of


class Group(NamedTuple):
    """`members` in the order of their ranks. `whole`: a slice that is all there, its workers numbered 0 to n-1."""

    number: int
    key: AttributeValue
    members: tuple[int, ...]
    mask: int
    whole: bool


class GroupIndex:
    """All groups of one attribute, by the type of the value, then by value: `1` and `"1"` are two groups."""

    def __init__(self, workers: Sequence[Worker], members: Mapping[AttributeValue, list[int]]) -> None:
        self.groups: list[Group] = []
        self.at: list[int] = [-1] * len(workers)  # the group of each position, -1 for none
        numbers = [worker_number(worker) for worker in workers]
        places = [(number is None, number or 0) for number in numbers]
        for index, key in enumerate(sorted(members, key=lambda key: (type(key.value).__name__, key))):
            positions = members[key]
            ranked = tuple(sorted(positions, key=places.__getitem__))
            complete = [numbers[position] for position in ranked] == list(range(len(ranked)))
            whole = complete and all(vm_count(workers[each]) in (None, len(ranked)) for each in ranked)
            self.groups.append(Group(index, key, ranked, mask_of(positions), whole))
            for position in positions:
                self.at[position] = index


Rank = tuple[int, ...]
Ranker = Callable[[Group], Rank | None]
RankedSet = tuple[Rank, list[int]]


class _Site:
    """Groups that may serve together. `best`: as many as are needed, with their rank; None if not known."""

    __slots__ = ("best", "heap")

    def __init__(self, groups: Iterable[int], ranks: Sequence[Rank | None]) -> None:
        self.heap = [(rank, number) for number in groups if (rank := ranks[number]) is not None]
        heapify(self.heap)
        self.best: RankedSet | None = None

    def first(self, count: int, ranks: Sequence[Rank | None]) -> RankedSet | None:
        """The `count` best groups, or None if there are not as many."""
        if self.best is None:
            found: list[tuple[Rank, int]] = []
            while self.heap and len(found) < count:
                entry = heappop(self.heap)
                if ranks[entry[1]] is entry[0]:  # otherwise it was ranked again since
                    found.append(entry)
            for entry in found:
                heappush(self.heap, entry)
            if len(found) == count:
                rank = tuple(map(sum, zip(*(rank for rank, _ in found), strict=True)))
                self.best = rank, sorted(number for _, number in found)
        return self.best


class GroupQueue:
    """The sets of groups that may serve, kept current as workers are taken.

    `ranker()` gives a function from a group to its rank (lower is better) or None, valid until the next change. Only
    groups of workers that changed since the last look are ranked again. A set of groups has the sums of their ranks;
    of equal sets the first one by number goes first.
    """

    def __init__(
        self,
        index: GroupIndex,
        changes: Sequence[tuple[int, object]],
        ranker: Callable[[], Ranker],
        tiers: Iterable[Iterable[Sequence[int]]],
    ) -> None:
        """`tiers` hold the sites, as numbers of groups: all groups of a set are of one site."""
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
        """The best set of `count` groups, or None; `by_tier`: of the first tier that has one."""
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
    """How many workers the slice has by the worker's own account, or None."""
    return _integer(worker, TPU_VM_COUNT_ATTRIBUTE_KEY)


def worker_number(worker: Worker) -> int | None:
    """The worker's place in its slice, or None where it has no integer one: a blank is never taken for 0."""
    return _integer(worker, TPU_WORKER_ID_ATTRIBUTE_KEY)


def _integer(worker: Worker, key: str) -> int | None:
    value = worker.attributes.get(key)
    return value.value if value is not None and isinstance(value.value, int) else None
