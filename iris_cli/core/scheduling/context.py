"""What one cycle has to give, and what it has given away so far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from iris_cli.core.constraints import DEVICE_TYPE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.ids import JobId
from iris_cli.core.scheduling.capacity import Amounts, Dimension, Levels, WorkerCapacity, mask_of
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.groups import Group


class SchedulingContext:
    """The state of one cycle, thrown away with it. Nothing that was given in is changed.

    `needs` are those of every entry of the queue. `changes` lists the positions whose room has shrunk;
    `version` moves on when a worker that was no candidate, or a worse one, may have become the best.
    """

    def __init__(self, fleet: Fleet, needs: Sequence[Amounts]) -> None:
        capacities = [WorkerCapacity.of(worker) for worker in fleet.workers]
        self.fleet = fleet
        self.cpu, self.memory, self.gpus, self.chips = self.dimensions = [
            Dimension((each.left[number] for each in capacities), (need[number] for need in needs))
            for number in range(len(Amounts._fields))
        ]
        self.attempts = [each.attempts for each in capacities]
        self._free_gpus = [each.gpus for each in capacities]
        self.changes: list[int] = []
        self.version = 0
        self.open = fleet.everyone  # not reserved for a gang
        self.reserved_by: dict[int, JobId] = {}
        self.reservations: dict[JobId, list[Group]] = {}
        self._survey_slices()

    def with_room(self, need: Amounts) -> int:
        """The workers with room for one task now, whatever else may speak against them."""
        return (
            self.cpu.now[need.cpu_millis]
            & self.memory.now[need.memory]
            & self.gpus.now[need.gpus]
            & self.chips.now[need.chips]
        )

    def has_room(self, position: int, need: Amounts) -> bool:
        """Whether one worker has room for one task now."""
        return (
            self.cpu.left[position] >= need.cpu_millis
            and self.memory.left[position] >= need.memory
            and self.gpus.left[position] >= need.gpus
            and self.chips.left[position] >= need.chips
        )

    def left(self, position: int) -> Amounts:
        """What one worker has left now."""
        return Amounts(*(dimension.left[position] for dimension in self.dimensions))

    @cached_property
    def idle(self) -> list[Levels]:
        """What workers have while nothing runs there, in the order of `Amounts`."""
        amounts = [Amounts.idle(worker) for worker in self.fleet.workers]
        return [Levels(each[number] for each in amounts) for number in range(len(Amounts._fields))]

    def large_enough(self, need: Amounts) -> int:
        """The workers that would have room if nothing ran there."""
        found = self.fleet.everyone
        for levels, amount in zip(self.idle, need, strict=True):
            found &= levels.reaching([amount])[amount]
        return found

    def take(self, position: int, need: Amounts) -> tuple[int, ...]:
        """Give one task its share of a worker. Returns the indexes of its GPUs, the lowest free ones."""
        self.cpu.take(position, need.cpu_millis)
        self.memory.take(position, need.memory)
        gpus: tuple[int, ...] = ()
        if need.gpus:
            self.gpus.take(position, need.gpus)
            free = self._free_gpus[position]
            gpus, self._free_gpus[position] = free[: need.gpus], free[need.gpus :]
        if need.chips:
            self.chips.take(position, need.chips)
        self.attempts[position] += 1
        self.changes.append(position)
        if self._whole >> position & 1:
            self._break_into(self._slices.groups[self._slices.at[position]])
        return gpus

    def reserve(self, job: JobId, groups: list[Group], positions: list[int]) -> None:
        """Keep workers for a gang: nobody after it in the queue gets them."""
        self.open &= ~mask_of(positions)
        self.reserved_by.update(dict.fromkeys(positions, job))
        self.reservations[job] = groups
        self.changes += positions
        self.version += 1

    # Slices nobody has touched yet

    def _survey_slices(self) -> None:
        self._slices = self.fleet.groups(TPU_NAME_ATTRIBUTE_KEY)
        self._sliced = self._whole = self._shared = 0
        for group in self._slices.groups:
            self._sliced |= group.mask
            if len(group.members) > 1:
                self._shared |= group.mask
            if not any(self.attempts[position] for position in group.members):
                self._whole |= group.mask
        kinds = self.fleet.holders(DEVICE_TYPE_ATTRIBUTE_KEY)
        self._accelerated = 0
        for kind, those in kinds.items():
            if str(kind) != "cpu":
                self._accelerated |= those
        self._rank_tiers()

    def _break_into(self, group: Group) -> None:
        self._whole &= ~group.mask
        self.version += 1
        self._rank_tiers()

    def _rank_tiers(self) -> None:
        """Whom single tasks go to first, so that whole slices stay whole; the last tier is everybody.

        CPU work: hosts without accelerators, then hosts of slices already broken into, then accelerator
        hosts outside slices. Accelerator work: any host but those of an untouched slice of several VMs.
        """
        everyone = self.fleet.everyone
        plain = everyone & ~self._accelerated
        broken = self._sliced & ~self._whole
        self.cpu_tiers = (plain, broken, everyone & ~self._sliced, everyone)
        self.device_tiers = (everyone & ~(self._shared & self._whole), everyone)
