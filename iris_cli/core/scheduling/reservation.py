"""Reservations of workers for a gang or a large task that has been pending for a long time.

Reservations are not stored: each cycle derives them from the live attempts. A blocking attempt is an attempt that must
end before a worker has room for the task. Other tasks may be placed on a reserved worker if they don't delay the gang
or large task. As in the other modules of scheduling, a position is the index of a worker in `Fleet.workers`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from math import gcd, inf
from operator import and_, sub

from iris_cli.core import Amounts, Job, JobId, TaskId, cached_by_argument
from iris_cli.core.model.waiting import competes_since
from iris_cli.core.scheduling.context import Load, SchedulingContext
from iris_cli.core.scheduling.explain.group_checks import group_of_one
from iris_cli.core.scheduling.placement import Requirement
from iris_cli.core.scheduling.reasons import WaitingKey
from iris_cli.core.scheduling.sets import Group, Levels, first_of

# Limit of `_least_excess`: the sum of all amounts, divided by their greatest common divisor.
_MAX_UNITS = 1 << 16


class Reservations:
    """The reservations of one cycle, for jobs that have competed for `min_wait` seconds (0: no reservations).

    No job submitted after `latest_submission` may reserve workers.
    """

    def __init__(
        self, context: SchedulingContext, min_wait: float, get_job: Callable[[JobId], Job | None]
    ) -> None:
        self._context = context
        self._get_job = get_job
        self.latest_submission = context.fleet.now - min_wait if min_wait > 0 else -inf

    def are_allowed(self, job: Job) -> bool:
        """Return whether the job has competed for long enough. Time on hold or before a dependency does not count."""
        return competes_since(job, self._get_job) <= self.latest_submission

    @cached_by_argument
    def blocking_attempts(self, need: Amounts) -> "BlockingAttempts":
        return BlockingAttempts(self._context, need)

    def reserve(self, key: WaitingKey, groups: list[Group], positions: list[int], need: Amounts) -> None:
        """Reserve room for one task on each of these workers, which belong to `groups`."""
        spare = self.blocking_attempts(need).spare
        self._context.reserve(key, groups, {position: spare(position) for position in positions})

    def reserve_worker(self, task: TaskId, requirement: Requirement) -> bool:
        """Reserve the worker with the fewest blocking attempts, then the lowest id. Return whether one was found."""
        queue, blocking = self._reservation_queue(requirement), self.blocking_attempts(requirement.need)
        while (nearest := queue.find_first()) is not None:
            count, position = nearest
            if position in self._context.reserved_by:
                heappop(queue.heap)
            elif blocking.count(position) != count:
                heapreplace(queue.heap, (blocking.count(position), position))
            else:
                self.reserve(task, [group_of_one(self._context, position)], [position], requirement.need)
                return True
        return False

    @cached_by_argument
    def _reservation_queue(self, requirement: Requirement) -> "_ReservationQueue":
        """Return the workers that could be reserved; no workers if the task needs only a small part of a worker."""
        context, need = self._context, requirement.need
        usable = requirement.schedulable & context.unreserved & context.workers_of_size(need)
        workers = usable if usable and _needs_large_part(context, requirement) else 0
        return _ReservationQueue(partial(self._large_enough_after, need), workers)

    def _large_enough_after(self, need: Amounts, ended: int) -> int:
        """Return the workers that may have room for `need` after `ended` attempts have ended. Others have no room."""
        found = (self._workers_with_amount_after((at, ended))[amount] for at, amount in enumerate(need))
        return reduce(and_, found)

    @cached_by_argument
    def _workers_with_amount_after(self, resource_and_ended: tuple[int, int]) -> dict[int, int]:
        """Return, by needed amount of a resource, the workers that may have it free after `ended` attempts have ended.

        `resource` is the index of the resource in `Amounts`.
        """
        resource, ended = resource_and_ended
        all_workers = self._context.fleet.all_workers
        needs = sorted(filter(None, self._context.dimensions[resource].workers_at_start), reverse=True)
        if not needs:
            return {0: all_workers}
        free = (
            (amounts[resource][min(ended, len(amounts[resource]) - 1)], positions)
            for amounts, positions in self._free_amounts_by_load
        )
        return {0: all_workers, **Levels(free).workers_with_at_least(needs)}

    @cached_property
    def _free_amounts_by_load(self) -> list[tuple[list[list[int]], list[int]]]:
        """For each Load, the result of `_largest_free_amounts`, and the positions of the workers with this Load."""
        by_load: dict[Load, list[int]] = {}
        for position in range(len(self._context.fleet.workers)):
            by_load.setdefault(self._context.load(position), []).append(position)
        return [(_largest_free_amounts(load), positions) for load, positions in by_load.items()]


class _ReservationQueue:
    """Workers in the order of their numbers of blocking attempts, then of their positions.

    `heap` has pairs of a lower bound of the number of blocking attempts and a position. The caller computes the number
    only for the first pair, and replaces the pair if the bound was too low. `heap` lacks workers that can't be first.
    """

    def __init__(self, large_enough_after: Callable[[int], int], workers: int) -> None:
        """`large_enough_after(n)`: the workers that may have enough room after `n` attempts have ended."""
        self._large_enough_after = large_enough_after
        self._bound = -1  # lower bound for the workers in `_next`
        self._next = 0  # workers not examined yet, with at least `_bound` blocking attempts
        self._later = workers  # workers not examined yet, with more blocking attempts
        self.heap: list[tuple[int, int]] = []

    def find_first(self) -> tuple[int, int] | None:
        """Return the first worker: a lower bound of its blocking attempts, and its position. None without workers."""
        while not self._next and self._later and (not self.heap or self.heap[0][0] > self._bound):
            self._bound += 1
            self._next = self._later & self._large_enough_after(self._bound)
            self._later ^= self._next
        if self._next:
            nearest = self._bound, first_of(self._next)
            if not self.heap or nearest < self.heap[0]:
                heappush(self.heap, nearest)
                self._next &= self._next - 1
        return self.heap[0] if self.heap else None


def _largest_free_amounts(load: Load) -> list[list[int]]:
    """Return, for each resource, the largest possible free amounts after the end of 0, 1, 2, ... attempts."""
    columns = zip(*load.claimed, strict=True) if load.claimed else [()] * len(load.free)
    return [
        list(accumulate(sorted(column, reverse=True), initial=free))
        for free, column in zip(load.free, columns, strict=True)
    ]


def _needs_large_part(context: SchedulingContext, requirement: Requirement) -> bool:
    """Return whether a task needs half of any resource of the largest suitable worker, or all GPUs of some worker."""
    need, workers = requirement.need, requirement.selected
    largest = [levels.largest(workers) for levels in context.idle_levels]
    if any(0 < wanted <= have <= 2 * wanted for wanted, have in zip(need, largest, strict=True)):
        return True
    one_more = Amounts(0, 0, need.gpus + 1, 0)
    return bool(need.gpus and workers & context.workers_of_size(need) & ~context.workers_of_size(one_more))


class BlockingAttempts:
    """The blocking attempts on each worker, for one task with the given need."""

    def __init__(self, context: SchedulingContext, need: Amounts) -> None:
        self._context = context
        self._need = need
        self._counts: dict[Load, int] = {}
        self._spares: dict[Load, Amounts] = {}

    def count(self, position: int) -> int:
        """Return the number of blocking attempts on one worker. Tasks placed in this cycle count as attempts."""
        load = self._context.load(position)
        found = self._counts.get(load)
        if found is None:
            must_end, shortage, others = self._shortage(load)
            found = must_end + (max(map(_count_needed, shortage, zip(*others, strict=True))) if others else 0)
            self._counts[load] = found
        return found

    def spare(self, position: int) -> Amounts:
        """Return the free amounts of a worker that other tasks may take without delaying the reserving task."""
        load = self._context.load(position)
        found = self._spares.get(load)
        if found is None:
            _, shortage, others = self._shortage(load)
            amounts = zip(*others, strict=True) if others else [()] * len(shortage)
            found = Amounts(*map(min, load.free, map(_least_excess, shortage, amounts)))
            self._spares[load] = found
        return found

    def _shortage(self, load: Load) -> tuple[int, list[int], list[Amounts]]:
        """Return the number of attempts that must end in any case, the shortage, and the other attempts.

        An attempt must end in any case if it and the task together exceed the size of the worker. The shortage has the
        amounts that the task still lacks after these attempts have ended.
        """
        cpu, memory, gpus, chips = map(sub, load.idle, self._need)
        must_end, others = list[Amounts](), list[Amounts]()
        for claim in load.claimed:
            fits = claim[0] <= cpu and claim[1] <= memory and claim[2] <= gpus and claim[3] <= chips
            (others if fits else must_end).append(claim)
        free = map(sum, zip(load.free, *must_end, strict=True))
        return len(must_end), list(map(sub, self._need, free)), others


def _count_needed(shortage: int, amounts: Sequence[int]) -> int:
    """Return the smallest number of `amounts` whose sum covers the shortage."""
    sums = accumulate(sorted(amounts, reverse=True), initial=0)
    return next((number for number, covered in enumerate(sums) if covered >= shortage), len(amounts))


def _least_excess(shortage: int, amounts: Sequence[int]) -> int:
    """Return the least excess of a sum of some `amounts` over the shortage; 0 if there are too many sums to examine."""
    if shortage <= 0:
        return -shortage
    unit = gcd(*amounts)
    if not unit or sum(amounts) > _MAX_UNITS * unit:
        return 0
    sums = 1  # bit n is 1 if some of the amounts add up to n units
    for amount in amounts:
        sums |= sums << amount // unit
    needed_units = -(-shortage // unit)
    sufficient_sums = sums >> needed_units
    return (first_of(sufficient_sums) + needed_units) * unit - shortage if sufficient_sums else 0
