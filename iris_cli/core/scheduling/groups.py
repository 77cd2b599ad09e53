"""Groups: workers with an equal value of one attribute, normally the workers of one slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from iris_cli.core.constraints import TPU_VM_COUNT_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.scheduling.capacity import mask_of
from iris_cli.core.worker import Worker


class Group(NamedTuple):
    """`members` are in the order of their ranks; `number` is the group's place among those of its attribute.

    `whole`: as a slice it is all there, its workers numbered 0 to n-1, each once.
    """

    number: int
    key: AttributeValue
    members: tuple[int, ...]
    mask: int
    whole: bool


class GroupIndex:
    """All groups of one attribute. Values of different types never meet: `1` and `"1"` are two groups.

    Groups are ordered by the type of their value, then by the value.
    """

    def __init__(self, workers: Sequence[Worker], members: Mapping[AttributeValue, list[int]]) -> None:
        self.groups: list[Group] = []
        self.at: list[int] = [-1] * len(workers)  # the group of each position, -1 for none
        numbers = [worker_number(worker) for worker in workers]
        places = [(number is None, number or 0) for number in numbers]
        for index, key in enumerate(sorted(members, key=_key_order)):
            positions = members[key]
            ranked = tuple(sorted(positions, key=places.__getitem__))
            complete = [numbers[position] for position in ranked] == list(range(len(ranked)))
            whole = complete and all(vm_count(workers[each]) in (None, len(ranked)) for each in ranked)
            self.groups.append(Group(index, key, ranked, mask_of(positions), whole))
            for position in positions:
                self.at[position] = index


Rank = tuple[int, ...]
Ranker = Callable[[Group], Rank | None]


class GroupQueue:
    """The groups that may serve, the best first, kept current as workers are taken.

    `ranker()` gives a function from a group to its rank (lower is better, no two equal) or None, valid until
    the next change. Only groups of workers that changed since the last look are ranked again.
    """

    def __init__(self, index: GroupIndex, changes: Sequence[int], ranker: Callable[[], Ranker]) -> None:
        self._index = index
        self._changes = changes
        self._seen = len(changes)
        self._ranker = ranker
        rank = ranker()
        self._ranks = [rank(group) for group in index.groups]
        self._heap = [(found, number) for number, found in enumerate(self._ranks) if found is not None]
        heapify(self._heap)

    def first(self, count: int) -> list[Group] | None:
        """The `count` best groups, best first, or None where there aren't as many."""
        self._catch_up()
        best: list[tuple[Rank, int]] = []
        while self._heap and len(best) < count:
            entry = heappop(self._heap)
            if self._ranks[entry[1]] is entry[0]:  # else it was ranked anew since
                best.append(entry)
        for entry in best:
            heappush(self._heap, entry)
        return [self._index.groups[number] for _, number in best] if len(best) == count else None

    def _catch_up(self) -> None:
        if self._seen == len(self._changes):
            return
        touched = dict.fromkeys(self._index.at[position] for position in self._changes[self._seen :])
        self._seen = len(self._changes)
        rank = self._ranker()
        for number in touched:
            if number < 0:
                continue
            found = self._ranks[number] = rank(self._index.groups[number])
            if found is not None:
                heappush(self._heap, (found, number))


def vm_count(worker: Worker) -> int | None:
    """How many workers the slice has by the worker's own account, or None."""
    return _integer(worker, TPU_VM_COUNT_ATTRIBUTE_KEY)


def worker_number(worker: Worker) -> int | None:
    """The worker's place in its slice, or None where it has no integer one: a blank is never taken for 0."""
    return _integer(worker, TPU_WORKER_ID_ATTRIBUTE_KEY)


def _integer(worker: Worker, key: str) -> int | None:
    value = worker.attributes.get(key)
    return value.value if value is not None and isinstance(value.value, int) else None


def _key_order(key: AttributeValue) -> tuple[str, AttributeValue]:
    return type(key.value).__name__, key
