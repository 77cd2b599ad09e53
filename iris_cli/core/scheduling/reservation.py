"""Reservations of workers for a gang or a large task that has been pending for a long time.

Reservations are not stored: each cycle derives them from the live attempts. Other tasks may be placed on a reserved
worker, but only on amounts that the gang or large task won't need, so they never delay it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from math import gcd, inf
from operator import and_, sub

from iris_cli.core import Amounts, TaskId
from iris_cli.core.method_cache import cached_by_argument
from iris_cli.core.scheduling.context import Load, SchedulingContext
from iris_cli.core.scheduling.explain.group_checks import group_of_one
from iris_cli.core.scheduling.placement import Requirement
from iris_cli.core.scheduling.reasons import WaitingKey
from iris_cli.core.scheduling.sets import Group, Levels, first_of

_MAX_SUMS = 1 << 16  # sums of amounts that are examined, in units of the greatest common divisor


class Reservations:
    """The reservations of one cycle, for jobs submitted at least `after` seconds ago (0: no reservations).

    A job may reserve workers if it was submitted at `due_until` or earlier.
    """

    def __init__(self, context: SchedulingContext, after: float) -> None:
        self._context = context
        self.due_until = context.fleet.now - after if after > 0 else -inf

    @cached_by_argument
    def waits(self, need: Amounts) -> Waits:
        """Return the attempts in the way of tasks with this need, by worker."""
        return Waits(self._context, need)

    def reserve(self, key: WaitingKey, groups: list[Group], positions: list[int], need: Amounts) -> None:
        """Reserve room for one task on each of these workers, which belong to the groups."""
        spare = self.waits(need).spare
        self._context.reserve(key, groups, {position: spare(position) for position in positions})

    def reserve_worker(self, task: TaskId, requirement: Requirement) -> bool:
        """Reserve the worker with the fewest attempts in the way; among equals, the worker with the lowest id.

        Return False if no worker can be reserved for the task.
        """
        queue, waits = self._queue(requirement), self.waits(requirement.need)
        while (nearest := queue.nearest()) is not None:
            wait, position = nearest
            if position in self._context.reserved_by:
                heappop(queue.heap)
            elif waits.count(position) != wait:
                heapreplace(queue.heap, (waits.count(position), position))
            else:
                self.reserve(task, [group_of_one(self._context, position)], [position], requirement.need)
                return True
        return False

    @cached_by_argument
    def _queue(self, requirement: Requirement) -> _ReservationQueue:
        """Return the workers that could be reserved: none if the task needs only a small part of a worker."""
        context, need = self._context, requirement.need
        usable = requirement.schedulable & context.open & context.large_enough(need)
        workers = usable if usable and _needs_much(context, requirement) else 0
        return _ReservationQueue(partial(self._large_enough_after, need), workers)

    def _large_enough_after(self, need: Amounts, ends: int) -> int:
        """Return the workers on which the end of `ends` attempts may free enough. On other workers it never does."""
        return reduce(
            and_, (self._with_most_free((number, ends))[amount] for number, amount in enumerate(need))
        )

    @cached_by_argument
    def _with_most_free(self, number_and_ends: tuple[int, int]) -> dict[int, int]:
        """Return, by needed amount of one resource, the workers on which the end of the largest attempts frees it."""
        number, ends = number_and_ends
        all_workers = self._context.fleet.all_workers
        needs = sorted(filter(None, self._context.dimensions[number].at_start), reverse=True)
        if not needs:
            return {0: all_workers}
        free = ((sums[number][min(ends, len(sums[number]) - 1)], positions) for sums, positions in self._sums)
        return {0: all_workers, **Levels(free).with_at_least(needs)}

    @cached_property
    def _sums(self) -> list[tuple[list[list[int]], list[int]]]:
        """The result of `_most_free` for each Load, and the positions of the workers with this Load."""
        by_load: dict[Load, list[int]] = {}
        for position in range(len(self._context.fleet.workers)):
            by_load.setdefault(self._context.load(position), []).append(position)
        return [(_most_free(load), positions) for load, positions in by_load.items()]


class _ReservationQueue:
    """Workers in the order of the number of attempts in the way, then of position.

    An attempt is in the way if it must end before the worker has room for the task. `heap` has the workers examined so
    far, each with a number of attempts that may be too small: numbers grow during a cycle. For most workers a lower
    bound of the number is enough, so workers are examined as late as possible.
    """

    def __init__(self, large_enough_after: Callable[[int], int], workers: int) -> None:
        """`large_enough_after`: the workers on which the end of so many attempts may make enough room."""
        self._large_enough_after = large_enough_after
        self._count = -1
        self._next = 0  # workers not examined yet, with at least `_count` attempts in the way
        self._later = workers  # workers not examined yet, with more attempts in the way
        self.heap: list[tuple[int, int]] = []

    def nearest(self) -> tuple[int, int] | None:
        """Return the attempts in the way (perhaps too small a number) and position of the first worker, or None."""
        while not self._next and self._later and (not self.heap or self.heap[0][0] > self._count):
            self._count += 1
            self._next = self._later & self._large_enough_after(self._count)
            self._later ^= self._next
        if self._next:
            nearest = self._count, first_of(self._next)
            if not self.heap or nearest < self.heap[0]:
                heappush(self.heap, nearest)
                self._next &= self._next - 1
        return self.heap[0] if self.heap else None


def _most_free(load: Load) -> list[list[int]]:
    """Return, for each resource, the largest possible free amounts after the end of 0, 1, 2, ... attempts."""
    columns = zip(*load.claimed, strict=True) if load.claimed else [()] * len(load.left)
    return [
        list(accumulate(sorted(column, reverse=True), initial=left))
        for left, column in zip(load.left, columns, strict=True)
    ]


def _needs_much(context: SchedulingContext, requirement: Requirement) -> bool:
    """Return whether a task needs all GPUs or chips of a host, or at least half of any amount of the largest worker.

    Only suitable workers are considered.
    """
    need, workers = requirement.need, requirement.selected
    largest = [levels.largest(workers) for levels in context.idle]
    if any(0 < wanted <= have <= 2 * wanted for wanted, have in zip(need, largest, strict=True)):
        return True
    more = Amounts(0, 0, need.gpus + 1, 0)
    return bool(need.gpus and workers & context.large_enough(need) & ~context.large_enough(more))


class Waits:
    """The attempts in the way on each worker: they must end before the worker has room for one task."""

    def __init__(self, context: SchedulingContext, need: Amounts) -> None:
        self._context = context
        self._need = need
        self._counts: dict[Load, int] = {}
        self._spares: dict[Load, Amounts] = {}

    def count(self, position: int) -> int:
        """Return the number of attempts in the way on one worker. Tasks placed in this cycle count as attempts."""
        load = self._context.load(position)
        found = self._counts.get(load)
        if found is None:
            ending, short, others = self._shortage(load)
            found = ending + (max(map(_fewest, short, zip(*others, strict=True))) if others else 0)
            self._counts[load] = found
        return found

    def spare(self, position: int) -> Amounts:
        """Return the free amounts of a worker that other tasks may take without a delay of the reserving task."""
        load = self._context.load(position)
        found = self._spares.get(load)
        if found is None:
            _, short, others = self._shortage(load)
            amounts = zip(*others, strict=True) if others else [()] * len(short)
            found = Amounts(*map(min, load.left, map(_least_excess, short, amounts)))
            self._spares[load] = found
        return found

    def _shortage(self, load: Load) -> tuple[int, list[int], list[Amounts]]:
        """Return the number of attempts that must end in any case, the amounts missing then, and the other attempts.

        An attempt must end in any case if it and the task together exceed the size of the worker.
        """
        cpu, memory, gpus, chips = map(sub, load.idle, self._need)
        ending, others = list[Amounts](), list[Amounts]()
        for claim in load.claimed:
            fits = claim[0] <= cpu and claim[1] <= memory and claim[2] <= gpus and claim[3] <= chips
            (others if fits else ending).append(claim)
        left = map(sum, zip(load.left, *ending, strict=True))
        return len(ending), list(map(sub, self._need, left)), others


def _fewest(short: int, amounts: Sequence[int]) -> int:
    """Return the smallest number of `amounts` that together cover the shortage."""
    count = 0
    for amount in sorted(amounts, reverse=True):
        if short <= 0:
            break
        short -= amount
        count += 1
    return count


def _least_excess(short: int, amounts: Sequence[int]) -> int:
    """Return the smallest amount by which a sum of some of `amounts` exceeds the shortage.

    Return 0 if there are too many sums to examine.
    """
    if short <= 0:
        return -short
    unit = gcd(*amounts)
    if not unit or sum(amounts) > _MAX_SUMS * unit:
        return 0
    sums = 1  # bit n is 1 if some of the amounts add up to n units
    for amount in amounts:
        sums |= sums << amount // unit
    enough = -(-short // unit)
    reached = sums >> enough
    return (first_of(reached) + enough) * unit - short if reached else 0
