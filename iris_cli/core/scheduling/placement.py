"""Requirements of pending jobs, the workers and groups that meet them, and the best worker for a single task."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, AttributeValue, Job, Task, TaskId, WorkerId
from iris_cli.core.constraints import DEVICE_VARIANT_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.sets import Group, first_of


class Shape(NamedTuple):
    """The shape of a gang: `groups` of `size` workers each. `whole`: each group must be a whole TPU slice."""

    group_by: str
    groups: int
    size: int
    whole: bool


class Requirement:
    """The requirement of all jobs with the same signature, and the sets of workers that meet it (bit masks).

    `required` and `preferred` are from the job's constraints; a preferred constraint (a preference) only ranks workers.
    `with_device`, `satisfying` and `tolerated` are the workers that suit the device, the required constraints, and the
    tolerations. `one_vm_limit`: for a single TPU task, the slices of one VM if there are any; otherwise all workers.
    `one_vm`: True if that limit excludes suitable workers. `selected`: the workers in all these sets.

    `lasting`: workers whose allocation does not end before the task's time limit. `eligible`: selected workers on which
    tasks may be placed in this cycle if they have room. `levels`: the workers by number of met preferences, the highest
    number first. `exhausted`: no worker fits in the rest of this cycle, because room only shrinks. `reservable`: a
    worker may still be reserved for a single task.
    """

    def __init__(self, job: Job, context: SchedulingContext) -> None:
        fleet = context.fleet
        self.job = job
        self.need = Amounts.needed(job.resources)
        self.packed_need = context.packing.pack(self.need)
        self.needs_no_device = job.resources.device_type == "cpu"
        self.shape = shape_of(job)
        self.required = tuple(each for each in job.constraints if each.required)
        self.preferred = [fleet.workers_satisfying(each) for each in job.constraints if not each.required]
        self.with_device = fleet.workers_with_device(job.resources.device)
        self.satisfying = fleet.workers_satisfying_all(self.required)
        self.tolerated = fleet.workers_tolerated_by(job.tolerations)
        self.selected = self.with_device & self.satisfying & self.tolerated
        self.one_vm_limit = fleet.all_workers
        if self.shape is None and self.need.chips and self.selected & fleet.single_vms:
            self.one_vm_limit = fleet.single_vms
        self.one_vm = bool(self.selected & ~self.one_vm_limit)
        self.selected &= self.one_vm_limit
        self.lasting = fleet.workers_lasting(job.timeout)
        self.schedulable = self.selected & fleet.schedulable & fleet.not_cooling_down & self.lasting
        self.eligible = self.schedulable & fleet.without_unconfirmed_stops
        self.levels = _levels(fleet.all_workers, self.preferred)
        self.exhausted = not self.eligible
        self.reservable = True
        # The last chosen worker, and the version of the context when it was chosen:
        self.position = -1
        self.worker = WorkerId("")
        self.version = -1

    def candidates(self, context: SchedulingContext) -> int:
        """Return the workers that fit now."""
        return self.eligible & context.workers_with_room(self.need)


def shape_of(job: Job) -> Shape | None:
    """Return the shape of a gang; None for a job of single tasks."""
    if job.coscheduling is None:
        return None
    groups = max(1, job.slices)
    whole = job.resources.device_type == "tpu"
    return Shape(job.coscheduling.group_by, groups, job.replicas // groups, whole)


def has_shape(group: Group, shape: Shape) -> bool:
    """Return whether a group has enough workers for a gang. For a TPU gang it must be a whole slice of that size."""
    if shape.whole:
        return group.whole and len(group.members) == shape.size
    return len(group.members) >= shape.size


def _levels(all_workers: int, preferred: list[int]) -> tuple[int, ...]:
    """Return the workers by number of met preferences, the highest first. `preferred`: a set for each preference."""
    met = [all_workers]  # met[n]: the workers that meet exactly n of the preferences examined so far
    for workers in preferred:
        one_less, same = [0, *met], [*met, 0]
        met = [(less & workers) | (as_many & ~workers) for less, as_many in zip(one_less, same, strict=True)]
    return tuple(reversed(met))


class Assignment(Struct):
    """The assignment of a task to a worker; unpacks into task and worker. `gpus` are indexes of assigned GPUs."""

    task: TaskId
    worker: WorkerId
    gpus: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[str | TaskId]:
        yield self.task
        yield self.worker

    def __hash__(self) -> int:
        return hash((self.task, self.worker, self.gpus))


def take_best_worker(context: SchedulingContext, requirement: Requirement) -> bool:
    """Take room for one task on the best worker, and set `requirement.position`. Return False if no worker fits.

    The last chosen worker stays the best while it has room, because room only shrinks. The context's version changes
    when another worker may have become better.
    """
    if requirement.version == context.version and context.take(requirement.position, requirement.packed_need):
        return True
    return _choose(context, requirement) and context.take(requirement.position, requirement.packed_need)


def assign(context: SchedulingContext, requirement: Requirement, task: Task, position: int) -> Assignment:
    """Take the GPUs for a task, and return its assignment. The caller has taken the room on the worker."""
    worker, count = context.fleet.ids[position], requirement.need.gpus
    return Assignment(task.id, worker, context.take_gpus(position, count) if count else ())


def _choose(context: SchedulingContext, requirement: Requirement) -> bool:
    """Choose by met preferences, then tiers, then fewest free GPUs, then lowest id. Return False if no worker fits."""
    candidates = requirement.candidates(context)
    if not candidates:
        requirement.exhausted = True
        return False
    best = _first_common(candidates, requirement.levels)
    best = _first_common(best, context.cpu_tiers if requirement.needs_no_device else context.device_tiers)
    if requirement.need.gpus:
        best = _first_common(best, context.gpu_tiers(requirement.need.gpus))
    requirement.position = first_of(best)
    requirement.worker = context.fleet.ids[requirement.position]
    requirement.version = context.version
    return True


def _first_common(workers: int, sets: Iterable[int]) -> int:
    """Return the workers that are in the first set that contains any of them; 0 if no set does."""
    for each in sets:
        if common := workers & each:
            return common
    return 0


VARIANT, REGION, ZONE = 1, 2, 3
"""Number of parts of a Location that groups must share: the variant; variant and region; variant, region and zone."""


Location = tuple[AttributeValue | None, ...]
"""The device variant, region and zone of a worker. For several workers: only the first parts, which all of them share.

A part is None if the worker lacks the attribute. For a job that needs no device, the variant is always None."""


class Sites:
    """The sites for a gang. A site is a list of group numbers: the gang may use these groups together.

    Each group has the gang's shape. `tiers`: sites that are one zone, then sites that are one region, then (for a job
    with `spread`) sites of one device variant. Each has at least as many groups as the gang needs. For a gang of one
    group, all groups are one site. `required_depth`: the number of location parts that the gang's groups must share.
    `locations`: for each group, by number, the parts of the location that all its workers share.
    """

    def __init__(self, fleet: Fleet, requirement: Requirement) -> None:
        shape, job = requirement.shape, requirement.job
        assert shape is not None
        groups = [group for group in fleet.groups(shape.group_by).groups if has_shape(group, shape)]
        self.needed = shape.groups
        self.required_depth = VARIANT if job.spread else REGION
        self.locations: dict[int, Location] = {}
        self.tiers: list[list[list[int]]] = [[[group.number for group in groups]]]
        if self.needed > 1:
            of_workers = worker_locations(fleet, needs_no_device=requirement.needs_no_device)
            for group in groups:
                self.locations[group.number] = shared_location(of_workers[each] for each in group.members)
            depths = range(ZONE, self.required_depth - 1, -1)
            sites = [self.by_location(self.locations, depth).values() for depth in depths]
            self.tiers = [[site for site in tier if len(site) >= self.needed] for tier in sites]

    def largest_site(self, groups: Iterable[int], depth: int) -> list[int]:
        """Return the largest subset of these groups that shares the first `depth` parts of the location.

        Of several equally large subsets return the first. For a gang of one group return all groups.
        """
        if self.needed == 1:
            return list(groups)
        return max(self.by_location(groups, depth).values(), key=len, default=[])

    def count_regions(self, groups: Iterable[int]) -> int:
        """Return the number of regions of these groups. A group with workers in several regions counts as a region."""
        found = [(number, self.locations[number]) for number in groups]
        return len({at[:REGION] if len(at) >= REGION else number for number, at in found})

    def count_variants(self, groups: Iterable[int]) -> dict[str, int]:
        """Return the number of these groups by device variant."""
        sites = self.by_location(groups, VARIANT).items()
        return {str(variant or "no variant"): len(site) for (variant,), site in sites}

    def by_location(self, groups: Iterable[int], depth: int) -> dict[Location, list[int]]:
        """Return the groups by the first `depth` parts of their location. Groups that share fewer parts are omitted."""
        found: dict[Location, list[int]] = {}
        for number in groups:
            location = self.locations[number]
            if len(location) >= depth:
                found.setdefault(location[:depth], []).append(number)
        return found


def worker_locations(fleet: Fleet, *, needs_no_device: bool) -> list[Location]:
    """Return the location of each worker, by position. With `needs_no_device`, all variants are None."""
    keys = DEVICE_VARIANT_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY
    variants, regions, zones = map(fleet.values_by_position, keys)
    if needs_no_device:
        variants = [None] * len(fleet.workers)
    return list(zip(variants, regions, zones, strict=True))


def shared_location(locations: Iterable[Location]) -> Location:
    """Return the first parts that all these locations have in common. There must be at least one location."""
    first, *others = locations
    depth = len(first)
    for location in others:
        while location[:depth] != first[:depth]:
            depth -= 1
    return first[:depth]
