"""Requirements of entries, the workers and sites that meet them, and the best worker for a single task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, AttributeValue, Job, Task, TaskId, WorkerId
from iris_cli.core.constraints import DEVICE_VARIANT_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.sets import Group, first_of


class Shape(NamedTuple):
    """The shape of a gang: `groups` of `size` workers each. `whole`: the groups are whole TPU slices."""

    group_by: str
    groups: int
    size: int
    whole: bool


class Requirement:
    """The requirement of equal entries, with the sets of workers that meet it.

    `selected`: workers with the right device, attributes and taints. A single TPU task uses only slices of one VM
    if there are any (`right_slices`; `one_vm`: that excludes workers). `eligible`: selected workers that accept
    tasks in this cycle if they have room. `lasting`: workers whose allocation lasts for the time limit of a task.
    `levels`: sets of workers by number of met preferences, the highest number first. `exhausted`: no worker fits any
    more in this cycle, because room only shrinks. `reservable`: a worker may still be reserved for a single task.
    """

    def __init__(self, job: Job, context: SchedulingContext) -> None:
        fleet = context.fleet
        self.job = job
        self.need = Amounts.needed(job.resources)
        self.packed_need = context.pack(self.need)
        self.plain = job.resources.device_type == "cpu"
        self.shape = shape_of(job)
        self.required = tuple(each for each in job.constraints if each.required)
        self.preferred = [fleet.satisfying(each) for each in job.constraints if not each.required]
        self.equipped = fleet.equipped(job.resources.device)
        self.allowed = fleet.everyone
        for constraint in self.required:
            self.allowed &= fleet.satisfying(constraint)
        self.tolerated = fleet.tolerating(job.tolerations)
        self.selected = self.equipped & self.allowed & self.tolerated
        self.right_slices = fleet.everyone
        if self.shape is None and self.need.chips and self.selected & fleet.single_vms:
            self.right_slices = fleet.single_vms
        self.one_vm = bool(self.selected & ~self.right_slices)
        self.selected &= self.right_slices
        self.lasting = fleet.lasting(job.timeout)
        self.healthy = self.selected & fleet.healthy & fleet.rested & self.lasting
        self.eligible = self.healthy & fleet.settled
        self.levels = _levels(fleet.everyone, self.preferred)
        self.exhausted = not self.eligible
        self.reservable = True
        self.position = -1  # of the worker chosen last
        self.worker = WorkerId("")  # chosen last
        self.version = -1  # of the context when it was chosen

    def candidates(self, context: SchedulingContext) -> int:
        """Return the workers that fit now."""
        return self.eligible & context.with_room(self.need)


def shape_of(job: Job) -> Shape | None:
    """Return the shape of a gang; None for a job of single tasks."""
    if job.coscheduling is None:
        return None
    groups = max(1, job.slices)
    whole = job.resources.device_type == "tpu"
    return Shape(job.coscheduling.group_by, groups, job.replicas // groups, whole)


def has_shape(group: Group, shape: Shape) -> bool:
    """Return whether a group has enough workers; for a TPU gang, whether it is a whole slice of that size."""
    if shape.whole:
        return group.whole and len(group.members) == shape.size
    return len(group.members) >= shape.size


def _levels(everyone: int, preferred: list[int]) -> tuple[int, ...]:
    met = [everyone]  # met[n]: the workers that meet exactly n of the preferences so far
    for workers in preferred:
        one_less, same = [0, *met], [*met, 0]
        met = [(less & workers) | (as_many & ~workers) for less, as_many in zip(one_less, same, strict=True)]
    return tuple(reversed(met))


class Assignment(Struct):
    """The assignment of a task to a worker; unpacks into these two. `gpus` are the indexes of the assigned GPUs."""

    task: TaskId
    worker: WorkerId
    gpus: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[str | TaskId]:
        yield self.task
        yield self.worker

    def __hash__(self) -> int:
        return hash((self.task, self.worker, self.gpus))


def take_best_worker(context: SchedulingContext, requirement: Requirement) -> bool:
    """Take room for one task on the best worker, `requirement.position`. Return False if no worker fits any more.

    The last choice stays the best while it has room: room only shrinks, and the context's version changes when
    another worker may have become better.
    """
    if requirement.version == context.version and context.take(requirement.position, requirement.packed_need):
        return True
    return _choose(context, requirement) and context.take(requirement.position, requirement.packed_need)


def assign(context: SchedulingContext, requirement: Requirement, task: Task, position: int) -> Assignment:
    """Return the assignment of a task whose room on a worker is already taken, and take its GPUs."""
    worker, count = context.fleet.ids[position], requirement.need.gpus
    return Assignment(task.id, worker, context.take_gpus(position, count) if count else ())


def _choose(context: SchedulingContext, requirement: Requirement) -> bool:
    """Choose the worker with the most met preferences, then by tier, then with the fewest free GPUs, then by id."""
    candidates = requirement.candidates(context)
    if not candidates:
        requirement.exhausted = True
        return False
    best = _first_common(candidates, requirement.levels)
    best = _first_common(best, context.cpu_tiers if requirement.plain else context.device_tiers)
    if requirement.need.gpus:
        best = _first_common(best, context.gpu_tiers(requirement.need.gpus))
    requirement.position = first_of(best)
    requirement.worker = context.fleet.ids[requirement.position]
    requirement.version = context.version
    return True


def _first_common(workers: int, sets: Iterable[int]) -> int:
    """Return the intersection of the workers with the first of these sets that contains any of them."""
    for each in sets:
        if common := workers & each:
            return common
    return 0


VARIANT, REGION, ZONE = 1, 2, 3
"""How much the groups of a site share: the device variant; also the region; also the zone."""


Location = tuple[AttributeValue | None, ...]
"""The device variant, region and zone of a worker; or the first of these that some workers share.

None is the value of workers without the attribute. For a job that needs no device, the variant is always None."""


class Sites:
    """The sites for a gang: sets of groups with its shape, by group number, that it may use together.

    `tiers`: the sites in one zone, the sites in one region and, for a job with `spread`, the sites of one device
    variant. Each site has at least as many groups as the gang needs. A gang of one group has one site of all groups.
    """

    def __init__(self, fleet: Fleet, requirement: Requirement) -> None:
        shape, job = requirement.shape, requirement.job
        assert shape is not None
        groups = [group for group in fleet.groups(shape.group_by).groups if has_shape(group, shape)]
        self.needed = shape.groups
        self.reach = VARIANT if job.spread else REGION
        self._locations: dict[int, Location] = {}
        self.tiers: list[list[list[int]]] = [[[group.number for group in groups]]]
        if self.needed > 1:
            of_workers = locations(fleet, plain=requirement.plain)
            for group in groups:
                self._locations[group.number] = common(of_workers[each] for each in group.members)
            self.tiers = [
                [site for site in self.divided(self._locations, depth).values() if len(site) >= self.needed]
                for depth in range(ZONE, self.reach - 1, -1)
            ]

    def are_enough(self, groups: Iterable[int]) -> bool:
        """Return whether enough of these groups are at one site."""
        return len(self.largest(groups, self.reach)) >= self.needed

    def largest(self, groups: Iterable[int], depth: int) -> list[int]:
        """Return the largest subset of these groups that share variant, region or zone (`depth`); or the first one."""
        if self.needed == 1:
            return list(groups)
        return max(self.divided(groups, depth).values(), key=len, default=[])

    def regions(self, groups: Iterable[int]) -> int:
        """Return the number of regions of these groups. A group in several regions counts as one more."""
        found = [(number, self.location_of(number)) for number in groups]
        return len({at[:REGION] if len(at) >= REGION else number for number, at in found})

    def location_of(self, group: int) -> Location:
        """Return the location shared by the members of a group."""
        return self._locations[group]

    def variants(self, groups: Iterable[int]) -> dict[str, int]:
        """Return the number of these groups by device variant."""
        sites = self.divided(groups, VARIANT).items()
        return {str(variant or "no variant"): len(site) for (variant,), site in sites}

    def divided(self, groups: Iterable[int], depth: int) -> dict[Location, list[int]]:
        """Return the groups by location to `depth`. Groups whose members differ in it are omitted."""
        found: dict[Location, list[int]] = {}
        for number in groups:
            location = self._locations[number]
            if len(location) >= depth:
                found.setdefault(location[:depth], []).append(number)
        return found


def locations(fleet: Fleet, *, plain: bool) -> list[Location]:
    """Return the location of each worker by position. `plain`: for a job that needs no device."""
    variants = [None] * len(fleet.workers) if plain else fleet.values(DEVICE_VARIANT_ATTRIBUTE_KEY)
    return list(
        zip(variants, fleet.values(REGION_ATTRIBUTE_KEY), fleet.values(ZONE_ATTRIBUTE_KEY), strict=True)
    )


def common(locations: Iterable[Location]) -> Location:
    """Return the part that these locations share. Raises StopIteration if there are none."""
    rest = iter(locations)
    shared = next(rest)
    for location in rest:
        while location[: len(shared)] != shared:
            shared = shared[:-1]
    return shared
