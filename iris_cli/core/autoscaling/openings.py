"""Room on slices that are to be made, filled one entry after the other."""

from __future__ import annotations

from itertools import islice

from iris_cli.core.attributes import TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.model.capacity import Amounts

Seat = tuple[int, int]
"""A slice and one of its VMs."""


class Openings:
    """The slices that one group is to make, and what is left of each VM.

    Room only shrinks, so for tasks that need the same the search goes on where the last one ended.
    """

    def __init__(self, state: GroupState) -> None:
        self.state = state
        self.count = 0
        self._left: list[list[Amounts]] = []
        self._from: dict[tuple[Amounts, tuple[int, ...] | None], Seat] = {}

    def open(self, slices: int, vms: int) -> None:
        """Have so many more, of so many VMs each."""
        self.count += slices
        self._left += [[self.state.vm_size] * vms for _ in range(slices)]

    def take(self, entry: DemandEntry, seats: tuple[int, ...]) -> bool:
        """Give an entry its room on what is open, all of it or nothing. A single task takes one of these seats."""
        need = Amounts.needed(entry.resources)
        if entry.shape is None:
            seat = self._first_free(need, seats)
            return seat is not None and self._occupy([seat], need)
        slices = entry.shape.size if _shares_an_attribute(entry) else 1
        return self.take_slices(entry, seats, slices)

    def take_slices(self, entry: DemandEntry, seats: tuple[int, ...], slices: int) -> bool:
        """Give a gang its room on so many slices, or nothing."""
        need = Amounts.needed(entry.resources)
        rows = self._free_rows(need, entry, seats, slices)
        return len(rows) == slices and self._occupy([seat for row in rows for seat in row], need)

    def free_slices(self, entry: DemandEntry, seats: tuple[int, ...], most: int) -> int:
        """How many open slices have room for a group of a gang, counted up to `most`."""
        return len(self._free_rows(Amounts.needed(entry.resources), entry, seats, most))

    def missing_for(self, entry: DemandEntry, seats: tuple[int, ...]) -> int:
        """How many more slices an entry needs, beside what is open."""
        if entry.shape is None:
            return 1
        need = Amounts.needed(entry.resources)
        if _shares_an_attribute(entry):
            free = len(self._free_rows(need, entry, seats, entry.shape.size))
            return -(-(entry.shape.size - free) // max(1, len(seats)))
        return 1 - self.free_slices(entry, seats, 1)

    def _free_rows(
        self, need: Amounts, entry: DemandEntry, seats: tuple[int, ...], most: int
    ) -> list[list[Seat]]:
        """What is free for each of the groups of a gang, or for each of its tasks where its slices are one group."""
        assert entry.shape is not None
        if _shares_an_attribute(entry):
            free = (
                (number, vm) for number, row in enumerate(self._left) for vm in seats if row[vm].covers(need)
            )
            return [[seat] for seat in islice(free, most)]
        start, _ = self._from.get((need, None), (0, 0))
        rows: list[list[Seat]] = []
        for number in range(start, len(self._left)):
            row = self._left[number]
            fitting = [(number, vm) for vm in seats if row[vm].covers(need)]
            if len(fitting) >= entry.shape.size:
                rows.append(fitting[: entry.shape.size])
                if len(rows) == most:
                    break
        if entry.shape.whole:
            self._from[need, None] = (rows[0][0][0] if rows else len(self._left), 0)
        return rows

    def _first_free(self, need: Amounts, seats: tuple[int, ...]) -> Seat | None:
        number, at = self._from.get((need, seats), (0, 0))
        while number < len(self._left):
            row = self._left[number]
            while at < len(seats):
                if row[seats[at]].covers(need):
                    self._from[need, seats] = (number, at)
                    return number, seats[at]
                at += 1
            number, at = number + 1, 0
        self._from[need, seats] = (number, at)
        return None

    def _occupy(self, seats: list[Seat], need: Amounts) -> bool:
        for number, vm in seats:
            left = self._left[number][vm]
            self._left[number][vm] = Amounts(
                *(have - wanted for have, wanted in zip(left, need, strict=True))
            )
        return True


def _shares_an_attribute(entry: DemandEntry) -> bool:
    """Whether all slices of a group are one group to this gang."""
    return entry.shape is not None and entry.shape.group_by != TPU_NAME_ATTRIBUTE_KEY
