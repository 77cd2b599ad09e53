"""Reservations of workers for a gang or a large task, and the use of these workers by other tasks until then.

No cycle stores a reservation: each cycle derives it again from the live attempts. A task admitted to a reserved
worker delays nothing: every set of attempts whose end would have been enough is still enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from math import gcd, inf
from operator import sub

from iris_cli.core import Amounts, JobId, TaskId
from iris_cli.core.scheduling.context import Load, SchedulingContext
from iris_cli.core.scheduling.explain.verdicts import alone
from iris_cli.core.scheduling.placement import Requirement
from iris_cli.core.scheduling.sets import Group, Levels, first_of

_MAX_SUMS = 1 << 16  # sums of amounts are enumerated up to this multiple of their largest common unit


class Reservations:
    """The reservations of one cycle, for jobs submitted up to `due_until`, `after` seconds ago (0: none)."""

    def __init__(self, context: SchedulingContext, after: float) -> None:
        self._context = context
        self.due_until = context.fleet.now - after if after > 0 else -inf
        self._waits: dict[Amounts, Waits] = {}
        self._lines: dict[Requirement, _Line] = {}
        self._bounds = _Bounds(context)

    def waits(self, need: Amounts) -> Waits:
        found = self._waits.get(need)
        if found is None:
            found = self._waits[need] = Waits(self._context, need)
        return found

    def reserve(self, key: TaskId | JobId, groups: list[Group], positions: list[int], need: Amounts) -> None:
        """Reserve room for one task on each of these members of the groups."""
        spare = self.waits(need).spare
        self._context.reserve(key, groups, {position: spare(position) for position in positions})

    def reserve_worker(self, task: TaskId, requirement: Requirement) -> bool:
        """Reserve the worker with the fewest attempts in the way, then the first by id. Return False without one."""
        line = self._lines.get(requirement)
        if line is None:
            line = self._lines[requirement] = self._line(requirement)
        waits = self.waits(requirement.need)
        while (first := line.first()) is not None:
            wait, position = first
            if position in self._context.reserved_by:
                heappop(line.queue)
            elif waits.count(position) != wait:
                heapreplace(line.queue, (waits.count(position), position))
            else:
                self.reserve(task, [alone(self._context, position)], [position], requirement.need)
                return True
        return False

    def _line(self, requirement: Requirement) -> _Line:
        """Return the workers that could be reserved. Both waits and reservations only grow in a cycle."""
        context, need = self._context, requirement.need
        could = requirement.healthy & context.open & context.large_enough(need)
        return _Line(self._bounds, need, could if could and _needs_much(context, requirement) else 0)


class _Line:
    """Workers in the order of the number of attempts in the way, then of position.

    `queue` is a heap of the workers seen so far, with numbers that may be too small. Workers are seen as late as
    possible: for most of them a lower bound is enough.
    """

    def __init__(self, bounds: _Bounds, need: Amounts, workers: int) -> None:
        self._bounds = bounds
        self._need = need
        self._count = -1
        self._those = 0  # not seen yet, with at least `_count` attempts in the way
        self._later = workers  # not seen yet, with more attempts in the way
        self.queue: list[tuple[int, int]] = []

    def first(self) -> tuple[int, int] | None:
        """Return the first worker and its number, which may be too small; None if no workers are left."""
        while not self._those and self._later and (not self.queue or self.queue[0][0] > self._count):
            self._count += 1
            self._those = self._later & self._bounds.enough(self._need, self._count)
            self._later ^= self._those
        if self._those:
            nearest = self._count, first_of(self._those)
            if not self.queue or nearest < self.queue[0]:
                heappush(self.queue, nearest)
                self._those &= self._those - 1
        return self.queue[0] if self.queue else None


class _Bounds:
    """Lower bounds of the attempts in the way on each worker, for all needs of the cycle at once.

    For each number of attempts it has the workers on which the largest amounts of so many attempts are enough.
    """

    def __init__(self, context: SchedulingContext) -> None:
        self._context = context
        self._tiers: list[list[dict[int, int]]] = []

    def enough(self, need: Amounts, count: int) -> int:
        """Return the workers on which the end of `count` attempts may be enough; on others it is not."""
        while len(self._tiers) <= count:
            self._tiers.append([self._tier(number, len(self._tiers)) for number in range(len(need))])
        found = self._context.fleet.everyone
        for amount, reaching in zip(need, self._tiers[count], strict=True):
            found &= reaching[amount]
        return found

    def _tier(self, number: int, count: int) -> dict[int, int]:
        everyone = self._context.fleet.everyone
        needs = sorted(filter(None, self._context.dimensions[number].at_start), reverse=True)
        if not needs:
            return {0: everyone}
        free = ((sums[number][min(count, len(sums[number]) - 1)], at) for sums, at in self._sums)
        return {0: everyone, **Levels(free).reaching(needs)}

    @cached_property
    def _sums(self) -> list[tuple[list[list[int]], list[int]]]:
        """For equal workers, by dimension, the most that is free after the end of 0, 1, 2 ... attempts."""
        alike: dict[Load, list[int]] = {}
        for position in range(len(self._context.fleet.workers)):
            alike.setdefault(self._context.load(position), []).append(position)
        return [(_most_free(load), at) for load, at in alike.items()]


def _most_free(load: Load) -> list[list[int]]:
    columns = zip(*load.held, strict=True) if load.held else [()] * len(load.left)
    return [
        list(accumulate(sorted(column, reverse=True), initial=left))
        for left, column in zip(load.left, columns, strict=True)
    ]


def _needs_much(context: SchedulingContext, requirement: Requirement) -> bool:
    """Return True for a whole accelerator host, or at least half of the largest suitable worker in any dimension."""
    need, workers = requirement.need, requirement.selected
    largest = [levels.most(workers) for levels in context.idle]
    if any(0 < wanted <= have <= 2 * wanted for wanted, have in zip(need, largest, strict=True)):
        return True
    more = Amounts(0, 0, need.gpus + 1, 0)
    return bool(need.gpus and workers & context.large_enough(need) & ~context.large_enough(more))


class Waits:
    """The live attempts that must end on each worker before it has room for one task; equal workers share results."""

    def __init__(self, context: SchedulingContext, need: Amounts) -> None:
        self._context = context
        self._need = need
        self._counts: dict[Load, int] = {}
        self._spares: dict[Load, Amounts] = {}

    def count(self, position: int) -> int:
        """Return the number of attempts in the way on one worker, including those of this cycle: 0 if it has room."""
        load = self._context.load(position)
        found = self._counts.get(load)
        if found is None:
            ending, short, others = self._short_of(load)
            found = ending + (max(map(_fewest, short, zip(*others, strict=True))) if others else 0)
            self._counts[load] = found
        return found

    def spare(self, position: int) -> Amounts:
        """Return the amounts of a worker that others may take without delaying the task."""
        load = self._context.load(position)
        found = self._spares.get(load)
        if found is None:
            _, short, others = self._short_of(load)
            held = zip(*others, strict=True) if others else [()] * len(short)
            found = Amounts(*map(min, load.left, map(_least_excess, short, held)))
            self._spares[load] = found
        return found

    def _short_of(self, load: Load) -> tuple[int, list[int], list[Amounts]]:
        """Return the number of attempts that must end anyway, the shortage after that, and the others' amounts."""
        cpu, memory, gpus, chips = map(sub, load.idle, self._need)
        ending, others = list[Amounts](), list[Amounts]()
        for claim in load.held:
            beside = claim[0] <= cpu and claim[1] <= memory and claim[2] <= gpus and claim[3] <= chips
            (others if beside else ending).append(claim)
        left = map(sum, zip(load.left, *ending, strict=True))
        return len(ending), list(map(sub, self._need, left)), others


def _fewest(short: int, held: Sequence[int]) -> int:
    """Return the smallest number of these amounts whose sum covers the shortage."""
    count = 0
    for amount in sorted(held, reverse=True):
        if short <= 0:
            break
        short -= amount
        count += 1
    return count


def _least_excess(short: int, held: Sequence[int]) -> int:
    """Return the least excess of a sum of these amounts over the shortage; 0 if there are too many sums."""
    if short <= 0:
        return -short
    unit = gcd(*held)
    if not unit or sum(held) > _MAX_SUMS * unit:
        return 0
    sums = 1  # bit n is set if some of the amounts add up to n units
    for amount in held:
        sums |= sums << amount // unit
    enough = -(-short // unit)
    reached = sums >> enough
    return (first_of(reached) + enough) * unit - short if reached else 0
