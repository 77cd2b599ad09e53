"""What entries ask for, and which workers could serve that. Entries that ask for the same share the work."""

from __future__ import annotations

from typing import NamedTuple

from iris_cli.core import Amounts, Job, WorkerId
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.groups import Group


class Shape(NamedTuple):
    """The shape of a gang: so many groups of so many workers. `whole`: the groups are whole TPU slices."""

    group_by: str
    groups: int
    size: int
    whole: bool


class Requirement:
    """What some entries ask for, as sets of workers.

    `selected` satisfy device, constraints and tolerations; of these a TPU task alone takes only slices of one VM if
    there are any (`right_slices`; `one_vm`: that excludes others). `eligible` may also be given something in this
    cycle, if they have room. `levels` are sets of workers by how many preferences they meet, the most first.
    `exhausted`: nothing fits any more, and as room only shrinks, nothing will in this cycle. `reservable`: it is not
    known yet that no worker can be reserved for a single task.
    """

    def __init__(self, job: Job, context: SchedulingContext) -> None:
        fleet = context.fleet
        self.job = job
        self.need = Amounts.needed(job.resources)
        self.parcel = context.parcel(self.need)
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
        self.healthy = self.selected & fleet.healthy & fleet.rested
        self.eligible = self.healthy & fleet.settled
        self.levels = _levels(fleet.everyone, self.preferred)
        self.exhausted = not self.eligible
        self.reservable = True
        self.seat = -1  # the position chosen last
        self.worker = WorkerId("")  # who that is
        self.seat_version = -1  # and the version of the context then

    def candidates(self, context: SchedulingContext) -> int:
        """The workers that fit now."""
        return self.eligible & context.with_room(self.need)


def shape_of(job: Job) -> Shape | None:
    """The shape of a gang; None for a job of single tasks."""
    if job.coscheduling is None:
        return None
    groups = max(1, job.slices)
    whole = job.resources.device_type == "tpu"
    return Shape(job.coscheduling.group_by, groups, job.replicas // groups, whole)


def has_shape(group: Group, shape: Shape) -> bool:
    """Whether a group has enough workers; for a TPU gang, whether it is a whole slice of that size."""
    if shape.whole:
        return group.whole and len(group.members) == shape.size
    return len(group.members) >= shape.size


def _levels(everyone: int, preferred: list[int]) -> tuple[int, ...]:
    met = [everyone]  # met[n]: the workers that meet exactly n of the preferences looked at so far
    for those in preferred:
        one_less, same = [0, *met], [*met, 0]
        met = [(less & those) | (as_many & ~those) for less, as_many in zip(one_less, same, strict=True)]
    return tuple(reversed(met))
