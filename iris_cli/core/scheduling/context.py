"""The free amounts of workers during one cycle, before and after each placement."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_

from msgspec import Struct

from iris_cli.core.constraints import DEVICE_TYPE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.decorators import cached_by_argument
from iris_cli.core.model.worker import Amounts, WorkerCapacity
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.reasons import WaitingKey
from iris_cli.core.scheduling.sets import Dimension, Group, Levels, mask_of

RoomChange = tuple[int, Amounts | None]
"""The position of a worker with less room than before, and the amounts that a task took (None: a reservation)."""


class PackedNeed(Struct, frozen=True):
    """The amounts that one task needs, also packed. `nonzero`: indexes of nonzero amounts; `signs`: their sign bits."""

    amounts: Amounts
    packed: int
    nonzero: tuple[int, ...]
    signs: int


class Packing:
    """Packs amounts into one integer, with a bit field for each amount: one subtraction takes all amounts of a task.

    The top bit of a field is its sign: 1 if the amount is not negative. Fields are wide enough for the difference of
    any two amounts, so that a subtraction never borrows from the next field.
    """

    def __init__(self, amounts: Iterable[Amounts]) -> None:
        largest = max((abs(amount) for each in amounts for amount in each), default=0)
        self._width = largest.bit_length() + 2
        self._shifts = [number * self._width for number in range(len(Amounts._fields))]
        self._field = (1 << self._width) - 1
        self._zero = 1 << (self._width - 1)
        self.signs = sum(self._zero << shift for shift in self._shifts)

    def pack_free(self, free: Amounts) -> int:
        return self.signs + self._join(free)

    def pack(self, need: Amounts) -> PackedNeed:
        """Return the packed amounts of a task. The task fits if free amounts minus `packed` have all sign bits set."""
        nonzero = tuple(number for number, amount in enumerate(need) if amount)
        signs = sum(self._zero << self._shifts[each] for each in nonzero)
        return PackedNeed(need, self._join(need), nonzero, signs)

    def unpack(self, packed_free: int) -> Amounts:
        return Amounts(*(self.unpack_amount(packed_free, number) for number in range(len(self._shifts))))

    def unpack_amount(self, packed_free: int, number: int) -> int:
        return (packed_free >> self._shifts[number] & self._field) - self._zero

    def _join(self, amounts: Amounts) -> int:
        return sum(amount << shift for amount, shift in zip(amounts, self._shifts, strict=True))


class Load(Struct, eq=False):
    """The amounts of a worker when it is idle, its free amounts, and the amounts that each attempt holds.

    Workers with equal amounts share one object, so results can be cached by Load.
    """

    idle: Amounts
    free: Amounts
    claimed: tuple[Amounts, ...]


class SchedulingContext:
    """The state of one cycle. A position stands for a worker, a bit mask for a set of workers (see `sets`).

    `attempts`: the number of attempts on each worker. `changes`: each reduction of a worker's room. `version` changes
    when another worker may have become the best worker for a task. `unreserved`: the workers that are not reserved. The
    room of a reserved worker is the room that other tasks may still take.
    """

    def __init__(self, fleet: Fleet, needs: Sequence[Amounts]) -> None:
        """`needs` are the amounts that the pending tasks need."""
        self.fleet = fleet
        capacities = [WorkerCapacity.of(worker) for worker in fleet.workers]
        self.attempts = [each.attempts for each in capacities]
        self._free_gpus = [each.gpus for each in capacities]
        self._set_free_amounts([each.free for each in capacities], needs)
        self.changes: list[RoomChange] = []
        self._recorded = 0  # number of changes already recorded in `_placed`
        self._placed: dict[int, list[Amounts]] = {}
        self._loads: dict[int, Load] = {}
        self._distinct_loads: dict[tuple[Amounts | int, ...], Load] = {}
        self.version = 0
        self.unreserved = fleet.all_workers
        self.reserved_by: dict[int, WaitingKey] = {}
        self.reservations: dict[WaitingKey, list[Group]] = {}
        self._withheld: dict[int, Amounts] = {}  # free amounts that only the reserving task may take
        self._shares: dict[tuple[int, Amounts], tuple[Amounts, int, Amounts]] = {}  # a cache for `reserve`
        self._set_idle_slices()

    # Room

    def _set_free_amounts(self, free: list[Amounts], needs: Sequence[Amounts]) -> None:
        by_amounts = _positions_by_amounts(free)
        self.packing = Packing([*by_amounts, *needs])
        self._signs = self.packing.signs
        packed = {amounts: self.packing.pack_free(amounts) for amounts in by_amounts}
        self._packed_free = [packed[amounts] for amounts in free]
        columns = list(zip(*needs, strict=True)) or [()] * len(Amounts._fields)
        largest = Amounts(*(max(column, default=0) for column in columns))
        self._largest_needs = self.packing.pack(largest).packed
        self.cpu, self.memory, self.gpus, self.chips = self.dimensions = [
            Dimension(levels, column, self.fleet.all_workers)
            for levels, column in zip(_levels(by_amounts), columns, strict=True)
        ]

    def workers_with_room(self, need: Amounts) -> int:
        """Return the workers with room for one task now. Their health and attributes are not considered."""
        return (
            self.cpu.workers_now[need.cpu_millis]
            & self.memory.workers_now[need.memory]
            & self.gpus.workers_now[need.gpus]
            & self.chips.workers_now[need.chips]
        )

    def has_room(self, position: int, need: PackedNeed) -> bool:
        """Return whether one worker has room for one task now."""
        return (self._packed_free[position] - need.packed) & self._signs == self._signs

    def free_amounts(self, position: int) -> Amounts:
        return self.packing.unpack(self._packed_free[position])

    def free_for_owner(self, position: int) -> Amounts:
        """Return the free amounts of a reserved worker for the task or gang that it is reserved for."""
        return Amounts(*map(int.__add__, self.free_amounts(position), self._withheld[position]))

    def load(self, position: int) -> Load:
        """Return the load of one worker by its live attempts and the tasks placed in this cycle."""
        if self._recorded < len(self.changes):
            for changed, taken in self.changes[self._recorded :]:
                if taken is not None:
                    self._loads.pop(changed, None)
                    self._placed.setdefault(changed, []).append(taken)
            self._recorded = len(self.changes)
        found = self._loads.get(position)
        if found is None:
            claims = map(Amounts.claimed, self.fleet.workers[position].claims.values())
            claimed = (*claims, *self._placed.get(position, ()))
            idle, packed_free = self._idle_amounts[position], self._packed_free[position]
            key = idle, packed_free, *claimed
            found = self._distinct_loads.get(key)
            if found is None:
                found = self._distinct_loads[key] = Load(idle, self.packing.unpack(packed_free), claimed)
            self._loads[position] = found
        return found

    def take(self, position: int, need: PackedNeed) -> bool:
        """Take the amounts of one task from a worker, or return False without room. `take_gpus` chooses the GPUs."""
        before = self._packed_free[position]
        after = before - need.packed
        signs = need.signs
        if (after - self._largest_needs) & signs != signs:  # less is left than some pending task needs
            if after & self._signs != self._signs:
                return False
            for number in need.nonzero:
                had = self.packing.unpack_amount(before, number)
                self.dimensions[number].shrink(position, had, had - need.amounts[number])
        self._packed_free[position] = after
        if not self.attempts[position]:
            self._mark_slice_as_used(position)
        self.attempts[position] += 1
        self.changes.append((position, need.amounts))
        return True

    def take_gpus(self, position: int, count: int) -> tuple[int, ...]:
        """Take the free GPUs with the lowest indexes. Return the indexes."""
        free, by_free = self._free_gpus[position], self._by_free_gpus
        self._free_gpus[position] = free[count:]
        fewer = len(free) - count
        by_free[len(free)] ^= 1 << position
        by_free[fewer] = by_free.get(fewer, 0) | 1 << position
        self.version += 1  # the worker may now be the best fit for other tasks
        return free[:count]

    def gpu_tiers(self, count: int) -> Iterator[int]:
        """Yield the workers with at least `count` free GPUs, by number of free GPUs in ascending order."""
        return (workers for free, workers in sorted(self._by_free_gpus.items()) if free >= count)

    @cached_property
    def _by_free_gpus(self) -> dict[int, int]:
        """The workers by the number of their free GPUs."""
        positions: dict[int, list[int]] = {}
        for position, free in enumerate(self._free_gpus):
            positions.setdefault(len(free), []).append(position)
        return {count: mask_of(found) for count, found in positions.items()}

    @cached_property
    def idle_levels(self) -> list[Levels]:
        """The amounts that workers have when they are idle, in the order of the fields of `Amounts`."""
        return _levels(_positions_by_amounts(self._idle_amounts))

    @cached_property
    def _idle_amounts(self) -> list[Amounts]:
        return list(map(Amounts.idle, self.fleet.workers))

    @cached_by_argument
    def workers_of_size(self, need: Amounts) -> int:
        """Return the workers that have room for one task when they run nothing else."""
        found = self.fleet.all_workers
        for levels, amount in zip(self.idle_levels, need, strict=True):
            found &= levels.workers_with_at_least([amount])[amount]
        return found

    def reserve(self, key: WaitingKey, groups: list[Group], spare: Mapping[int, Amounts]) -> None:
        """Reserve the workers in `spare` for a gang or a task. Other tasks may still take the spare amounts."""
        for position, amounts in spare.items():
            share = self._packed_free[position], amounts
            if share not in self._shares:
                free = self.free_amounts(position)
                withheld = Amounts(*map(int.__sub__, free, amounts))
                self._shares[share] = free, self.packing.pack_free(amounts), withheld
            free, self._packed_free[position], self._withheld[position] = self._shares[share]
            for dimension, had, has in zip(self.dimensions, free, amounts, strict=True):
                if had != has:
                    dimension.shrink(position, had, has)
        self.unreserved &= ~mask_of(list(spare))
        self.reserved_by.update(dict.fromkeys(spare, key))
        self.reservations[key] = groups
        self.changes += [(position, None) for position in spare]

    # Idle slices

    def _set_idle_slices(self) -> None:
        self._slices = self.fleet.groups(TPU_NAME_ATTRIBUTE_KEY)
        groups, at = self._slices.groups, self._slices.numbers
        used = frozenset(at[position] for position, number in enumerate(self.attempts) if number)
        sliced = [position for position, number in enumerate(at) if number >= 0]
        self._sliced = mask_of(sliced)
        self._multi_host = mask_of([each for each in sliced if len(groups[at[each]].members) > 1])
        self._idle_slices = mask_of([each for each in sliced if at[each] not in used])
        kinds = self.fleet.workers_by_value(DEVICE_TYPE_ATTRIBUTE_KEY).items()
        self._accelerated = reduce(or_, (workers for kind, workers in kinds if str(kind) != "cpu"), 0)
        self._rank_tiers()

    def _mark_slice_as_used(self, position: int) -> None:
        """Update the tiers after the first attempt on a worker: its slice may have been idle until now."""
        if self._idle_slices >> position & 1:
            self._idle_slices &= ~self._slices.groups[self._slices.numbers[position]].mask
            self.version += 1
            self._rank_tiers()

    def _rank_tiers(self) -> None:
        """Set the tiers (workers for single tasks, by preference), so that idle slices stay free for gangs.

        For CPU tasks: hosts without accelerators, then hosts of slices in use, then accelerator hosts outside slices.
        For accelerator tasks: all hosts except the hosts of idle multi-host slices. The last tier has all workers.
        """
        all_workers = self.fleet.all_workers
        without_device = all_workers & ~self._accelerated
        used_slices = self._sliced & ~self._idle_slices
        self.cpu_tiers = (without_device, used_slices, all_workers & ~self._sliced, all_workers)
        self.device_tiers = (all_workers & ~(self._multi_host & self._idle_slices), all_workers)


def _positions_by_amounts(amounts: Iterable[Amounts]) -> dict[Amounts, list[int]]:
    """Return the positions of the workers with equal amounts. `amounts` has the amounts of each worker, in order."""
    found: dict[Amounts, list[int]] = {}
    for position, each in enumerate(amounts):
        found.setdefault(each, []).append(position)
    return found


def _levels(by_amounts: Mapping[Amounts, list[int]]) -> list[Levels]:
    """Return the levels of each resource, in the order of the fields of `Amounts`."""
    return [
        Levels((amounts[number], positions) for amounts, positions in by_amounts.items())
        for number in range(len(Amounts._fields))
    ]
