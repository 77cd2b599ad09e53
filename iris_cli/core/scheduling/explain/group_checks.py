"""Find why workers and groups do not fit, from the sets of workers with which the cycle decided."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from operator import and_
from typing import NamedTuple

from iris_cli.core import Amounts, AttributeValue, WorkerId
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.placement import Requirement, Shape, has_shape
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sets import Group, mask_of, positions_of

Criterion = tuple[ReasonKind, int]
"""A kind of reason, and the workers to which it does not apply."""


class Case(NamedTuple):
    """A pending task or gang at the end of a cycle. `open_workers`: those not reserved for another task or gang."""

    context: SchedulingContext
    requirement: Requirement
    open_workers: int

    @property
    def reserved(self) -> int:
        """The workers reserved for the task or gang itself."""
        return self.open_workers & ~self.context.unreserved

    @property
    def room(self) -> int:
        """The workers with room. Workers reserved for the task or gang itself count as free."""
        need = self.requirement.need
        fitting = [each for each in positions_of(self.reserved) if self.free_amounts(each).covers(need)]
        return self.context.workers_with_room(need) | mask_of(fitting)

    def free_amounts(self, position: int) -> Amounts:
        """Return the amounts of a worker that are free for the task or gang."""
        is_reserved = self.reserved >> position & 1
        return self.context.free_for_owner(position) if is_reserved else self.context.free_amounts(position)

    @property
    def had_room(self) -> int:
        """The workers that had room at the start of the cycle. Their health and attributes are not considered."""
        pairs = zip(self.context.dimensions, self.requirement.need, strict=True)
        return reduce(and_, (dimension.workers_at_start[amount] for dimension, amount in pairs))


class GroupCheck(NamedTuple):
    """The first kind of reason that rejects a group or worker (None if it fits), and the rejected workers."""

    group: Group
    kind: ReasonKind | None
    rejected: int

    @property
    def is_suitable(self) -> bool:
        """True if the group has suitable workers and the right shape, even if it is not available now."""
        return self.kind is None or self.kind.rank > ReasonKind.GROUP_SHAPE.rank


class Rejection(NamedTuple):
    """The number of workers or groups (`units`) and the set of workers (`rejected`) that one kind of reason rejects.

    `have` is the largest number of workers in one of these groups that are not rejected.
    """

    kind: ReasonKind
    units: int
    rejected: int
    have: int = 0


def suitability_criteria(requirement: Requirement) -> list[Criterion]:
    """Return the criteria for a worker's properties, which don't depend on its load, in order of precedence."""
    return [
        (ReasonKind.NO_SUCH_DEVICE, requirement.with_device),
        (ReasonKind.CONSTRAINT, requirement.satisfying),
        (ReasonKind.TAINT, requirement.tolerated),
        (ReasonKind.GROUP_SHAPE, requirement.one_vm_limit),
    ]


def availability_criteria(case: Case) -> list[Criterion]:
    """Return the criteria for the availability of suitable workers. A worker that meets all of them fits."""
    context, need, room = case.context, case.requirement.need, case.room
    fleet = context.fleet
    return [
        (ReasonKind.UNHEALTHY, fleet.schedulable),
        (ReasonKind.COOLDOWN, fleet.not_cooling_down),
        (ReasonKind.CHIPS, context.chips.workers_at_start[need.chips]),
        (ReasonKind.GPUS, context.gpus.workers_at_start[need.gpus]),
        (ReasonKind.MEMORY, context.memory.workers_at_start[need.memory]),
        (ReasonKind.CPU, context.cpu.workers_at_start[need.cpu_millis]),
        (ReasonKind.TIME_LEFT, case.requirement.lasting),
        (ReasonKind.STOPPING, fleet.without_unconfirmed_stops),
        (ReasonKind.RESERVED, case.open_workers | room),
        (ReasonKind.BEHIND, room),
    ]


def first_rejections(workers: int, criteria: list[Criterion]) -> list[Rejection]:
    """Return, for each criterion, the workers that meet all earlier criteria and fail this criterion."""
    rejections = []
    for kind, passing in criteria:
        found = workers & ~passing
        if found:
            rejections.append(Rejection(kind, found.bit_count(), found))
        workers &= passing
    return rejections


class RejectionCounts:
    """The number of groups that each kind of reason rejects, and their rejected workers."""

    def __init__(self, checks: Iterable[GroupCheck]) -> None:
        self._rejected: defaultdict[ReasonKind, int] = defaultdict(int)
        self._accepted: defaultdict[ReasonKind, Counter[int]] = defaultdict(Counter)
        for each in checks:
            self._count(each, 1)

    def rejections(self) -> list[Rejection]:
        """Return one rejection for each kind of reason, in order of precedence."""
        return [
            Rejection(kind, accepted.total(), self._rejected[kind], max(+accepted))
            for kind, accepted in sorted(self._accepted.items(), key=lambda item: item[0].rank)
            if accepted.total()
        ]

    def with_changed(self, before: Iterable[GroupCheck], now: Iterable[GroupCheck]) -> "RejectionCounts":
        """Return the counts after the checks `now` have replaced the checks `before`."""
        other = RejectionCounts(())
        other._rejected.update(self._rejected)
        other._accepted.update((kind, accepted.copy()) for kind, accepted in self._accepted.items())
        for each in before:
            other._count(each, -1)
        for each in now:
            other._count(each, 1)
        return other

    def _count(self, check: GroupCheck, times: int) -> None:
        group, kind, rejected = check
        if kind is not None:
            self._rejected[kind] ^= rejected  # xor adds or removes them: no worker is in two groups
            self._accepted[kind][len(group.members) - rejected.bit_count()] += times


def near_misses(case: Case) -> list[GroupCheck]:
    """Return the workers or groups that almost fit, the nearest first. The nearest fail only the last criteria."""
    requirement = case.requirement
    if requirement.shape is not None:
        return sorted((each for each in check_groups(case, requirement.shape) if each.kind), key=_distance)
    criteria = [*suitability_criteria(requirement)[1:], *availability_criteria(case)]
    return [
        GroupCheck(group_of_one(case.context, position), kind, 1 << position)
        for kind, _, rejected, _ in reversed(first_rejections(requirement.with_device, criteria))
        for position in positions_of(rejected)
    ]


def group_of_one(context: SchedulingContext, position: int) -> Group:
    key = AttributeValue(context.fleet.workers[position].id)
    return Group(position, key, (position,), 1 << position, whole=True)


def group_containing(context: SchedulingContext, requirement: Requirement, worker: WorkerId) -> Group:
    """Return the group that contains a worker; for tasks outside a gang, a group with only this worker."""
    position = bisect_left(context.fleet.ids, worker)
    if requirement.shape is None:
        return group_of_one(context, position)
    index = context.fleet.groups(requirement.shape.group_by)
    return index.groups[index.numbers[position]]


def fits(group: Group, shape: Shape | None, workers: int) -> bool:
    """Return whether enough of the workers of a group are in the set `workers`."""
    if shape is None:
        return bool(group.mask & workers)
    needed = len(group.members) if shape.whole else shape.size
    return has_shape(group, shape) and (group.mask & workers).bit_count() >= needed


def _distance(check: GroupCheck) -> tuple[int, int, int]:
    assert check.kind is not None
    return -check.kind.rank, check.rejected.bit_count(), check.group.number


def check_groups(case: Case, shape: Shape, numbers: Collection[int] | None = None) -> list[GroupCheck]:
    """Return a check of each group that has workers with a compatible device. `numbers`: only check these groups."""
    suitability, availability = suitability_criteria(case.requirement), availability_criteria(case)
    groups = case.context.fleet.groups(shape.group_by).groups
    chosen = groups if numbers is None else [groups[number] for number in sorted(numbers)]
    return [
        _check_group(group, shape, suitability, availability)
        for group in chosen
        if group.mask & case.requirement.with_device
    ]


def rejected_before(case: Case, number: int) -> Iterator[GroupCheck]:
    """Yield a check of each suitable group or worker that has a lower number and does not fit now."""
    requirement, context = case.requirement, case.context
    availability = availability_criteria(case)
    not_fitting = requirement.selected & ~(requirement.eligible & case.room)
    if requirement.shape is None:
        for position in positions_of(not_fitting & ((1 << number) - 1)):
            kind = next(kind for kind, passing in availability if not passing >> position & 1)
            yield GroupCheck(group_of_one(context, position), kind, 1 << position)
        return
    for group in context.fleet.groups(requirement.shape.group_by).groups[:number]:
        if group.mask & not_fitting:
            yield _check_group(group, requirement.shape, suitability_criteria(requirement), availability)


def _check_group(
    group: Group, shape: Shape, suitability: list[Criterion], availability: list[Criterion]
) -> GroupCheck:
    remaining = group.mask
    needed = len(group.members) if shape.whole else min(len(group.members), shape.size)
    right_shape = (ReasonKind.GROUP_SHAPE, group.mask if has_shape(group, shape) else 0)
    for kind, passing in (*suitability, right_shape, *availability):
        if (remaining & passing).bit_count() < needed:
            return GroupCheck(group, kind, remaining & ~passing)
        remaining &= passing
    return GroupCheck(group, None, 0)
