"""Find why workers and groups do not fit, from the sets of workers with which the cycle decided."""

from __future__ import annotations

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

Check = tuple[ReasonKind, int]  # a kind of reason, and the workers to which it does not apply


class Case(NamedTuple):
    """A requirement at the end of a cycle. `open` are the workers that are not reserved for another task or gang."""

    context: SchedulingContext
    requirement: Requirement
    open: int

    @property
    def candidates(self) -> int:
        """The workers that fit now."""
        return self.requirement.eligible & self.room

    @property
    def own(self) -> int:
        """The workers reserved for the task or gang itself."""
        return self.open & ~self.context.open

    @property
    def room(self) -> int:
        """The workers with room, including workers reserved for the task or gang itself."""
        need = self.requirement.need
        own = [each for each in positions_of(self.own) if self.left(each).covers(need)]
        return self.context.with_room(need) | mask_of(own)

    def left(self, position: int) -> Amounts:
        """Return the amounts of a worker that are free for the task or gang."""
        own = self.own >> position & 1
        return self.context.left_to_owner(position) if own else self.context.left(position)

    @property
    def had_room(self) -> int:
        """The workers that had room at the start of the cycle. Their health and attributes are not considered."""
        pairs = zip(self.context.dimensions, self.requirement.need, strict=True)
        return reduce(and_, (dimension.at_start[amount] for dimension, amount in pairs))


class Verdict(NamedTuple):
    """The first kind of reason against a group or worker, None if it fits. `rejected`: the workers that fail for it."""

    group: Group
    kind: ReasonKind | None
    rejected: int

    @property
    def is_suitable(self) -> bool:
        """True if the group is suitable, even if it is not available now."""
        return self.kind is None or self.kind.rank > ReasonKind.GROUP_SHAPE.rank


class Rejection(NamedTuple):
    """The number of workers or groups (`units`) and the set of workers (`rejected`) that fail for one kind of reason.

    `have` is the largest number of suitable workers in one of these groups.
    """

    kind: ReasonKind
    units: int
    rejected: int
    have: int = 0


def selection(requirement: Requirement) -> list[Check]:
    """Return the checks of a worker's properties, which don't depend on its load."""
    return [
        (ReasonKind.NO_SUCH_DEVICE, requirement.with_device),
        (ReasonKind.CONSTRAINT, requirement.satisfying),
        (ReasonKind.TAINT, requirement.tolerated),
        (ReasonKind.GROUP_SHAPE, requirement.one_vm_limit),
    ]


def availability(case: Case) -> list[Check]:
    """Return the checks of a suitable worker's availability. A worker that passes all of them fits."""
    context, need, room = case.context, case.requirement.need, case.room
    fleet = context.fleet
    return [
        (ReasonKind.UNHEALTHY, fleet.healthy),
        (ReasonKind.COOLDOWN, fleet.not_cooling_down),
        (ReasonKind.CHIPS, context.chips.at_start[need.chips]),
        (ReasonKind.GPUS, context.gpus.at_start[need.gpus]),
        (ReasonKind.MEMORY, context.memory.at_start[need.memory]),
        (ReasonKind.CPU, context.cpu.at_start[need.cpu_millis]),
        (ReasonKind.TIME_LEFT, case.requirement.lasting),
        (ReasonKind.STOPPING, fleet.without_unconfirmed_stops),
        (ReasonKind.RESERVED, case.open | room),
        (ReasonKind.BEHIND, room),
    ]


def sift(workers: int, checks: list[Check]) -> list[Rejection]:
    """Return, for each check, the workers that pass all earlier checks and fail this check."""
    rejections = []
    for kind, passing in checks:
        found = workers & ~passing
        if found:
            rejections.append(Rejection(kind, found.bit_count(), found))
        workers &= passing
    return rejections


class Tally:
    """Numbers of groups with each verdict."""

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self._rejected: defaultdict[ReasonKind, int] = defaultdict(int)
        self._accepted: defaultdict[ReasonKind, Counter[int]] = defaultdict(Counter)
        for each in verdicts:
            self._count(each, 1)

    def rejections(self) -> list[Rejection]:
        """Return one rejection for each kind of reason, in order of precedence."""
        return [
            Rejection(kind, accepted.total(), self._rejected[kind], max(+accepted))
            for kind, accepted in sorted(self._accepted.items(), key=lambda item: item[0].rank)
            if accepted.total()
        ]

    def with_changed(self, before: Iterable[Verdict], now: Iterable[Verdict]) -> Tally:
        """Return a tally in which the verdicts `now` replace the verdicts `before`."""
        other = Tally(())
        other._rejected.update(self._rejected)
        other._accepted.update((kind, accepted.copy()) for kind, accepted in self._accepted.items())
        for each in before:
            other._count(each, -1)
        for each in now:
            other._count(each, 1)
        return other

    def _count(self, verdict: Verdict, times: int) -> None:
        group, kind, rejected = verdict
        if kind is not None:
            self._rejected[kind] ^= rejected  # xor adds or removes them: no worker is in two groups
            self._accepted[kind][len(group.members) - rejected.bit_count()] += times


def near_misses(case: Case) -> list[Verdict]:
    """Return the workers or groups that almost fit, the nearest first: they fail only the last failed check."""
    requirement = case.requirement
    if requirement.shape is not None:
        return sorted((each for each in judge(case, requirement.shape) if each.kind), key=_distance)
    checks = [*selection(requirement)[1:], *availability(case)]
    return [
        Verdict(group_of_one(case.context, position), kind, 1 << position)
        for kind, _, rejected, _ in reversed(sift(requirement.with_device, checks))
        for position in positions_of(rejected)
    ]


def group_of_one(context: SchedulingContext, position: int) -> Group:
    key = AttributeValue(context.fleet.workers[position].id)
    return Group(position, key, (position,), 1 << position, whole=True)


def group_with(context: SchedulingContext, requirement: Requirement, worker: WorkerId) -> Group:
    """Return the group that contains a worker; for tasks outside a gang, a group of this worker alone."""
    position = bisect_left(context.fleet.ids, worker)
    if requirement.shape is None:
        return group_of_one(context, position)
    index = context.fleet.groups(requirement.shape.group_by)
    return index.groups[index.numbers[position]]


def fits(group: Group, shape: Shape | None, workers: int) -> bool:
    """Return whether these workers of a group are enough."""
    if shape is None:
        return bool(group.mask & workers)
    needed = len(group.members) if shape.whole else shape.size
    return has_shape(group, shape) and (group.mask & workers).bit_count() >= needed


def _distance(verdict: Verdict) -> tuple[int, int, int]:
    assert verdict.kind is not None
    return -verdict.kind.rank, verdict.rejected.bit_count(), verdict.group.number


def judge(case: Case, shape: Shape, among: Collection[int] | None = None) -> list[Verdict]:
    """Return verdicts on the groups that have workers with a compatible device. `among`: only these groups."""
    first, later = selection(case.requirement), availability(case)
    groups = case.context.fleet.groups(shape.group_by).groups
    chosen = groups if among is None else [groups[number] for number in sorted(among)]
    return [
        _judge(group, shape, first, later) for group in chosen if group.mask & case.requirement.with_device
    ]


def rejected_before(case: Case, number: int) -> Iterator[Verdict]:
    """Yield verdicts on suitable groups or workers that have a number below `number` and do not fit now."""
    requirement, context = case.requirement, case.context
    later = availability(case)
    unfit = requirement.selected & ~case.candidates
    if requirement.shape is None:
        for position in positions_of(unfit & ((1 << number) - 1)):
            kind = next(kind for kind, passing in later if not passing >> position & 1)
            yield Verdict(group_of_one(context, position), kind, 1 << position)
        return
    for group in context.fleet.groups(requirement.shape.group_by).groups[:number]:
        if group.mask & unfit:
            yield _judge(group, requirement.shape, selection(requirement), later)


def _judge(group: Group, shape: Shape, first: list[Check], later: list[Check]) -> Verdict:
    left = group.mask
    needed = len(group.members) if shape.whole else min(len(group.members), shape.size)
    right_shape = (ReasonKind.GROUP_SHAPE, group.mask if has_shape(group, shape) else 0)
    for kind, passing in (*first, right_shape, *later):
        remaining = left & passing
        if remaining.bit_count() < needed:
            return Verdict(group, kind, left & ~passing)
        left = remaining
    return Verdict(group, None, 0)
