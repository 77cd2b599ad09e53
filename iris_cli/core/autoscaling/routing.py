"""Routing: which scale group makes a slice for which entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from iris_cli.core import collector
from iris_cli.core.autoscaling.catalogue import Catalogue
from iris_cli.core.autoscaling.culprit import capacity_reason, why_nobody_serves
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.autoscaling.openings import Openings
from iris_cli.core.autoscaling.unmet import UnmetKind, UnmetReason
from iris_cli.core.dataclass import dataclass
from iris_cli.core.scale_group import ScaleGroup
from iris_cli.core.scheduling.capacity import mask_of, positions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetDemand:
    """An entry for which nobody makes a slice, and why."""

    entry: DemandEntry
    reason: UnmetReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """`launch`: how many slices each group is to make; `routed`: which entries are for its slices, `unmet` for none.

    Groups that are to make nothing are in neither mapping. Entries are in the order in which they came.
    """

    launch: Mapping[str, int]
    routed: Mapping[str, tuple[DemandEntry, ...]]
    unmet: tuple[UnmetDemand, ...]


@collector.at_rest
def route_demand(
    entries: Iterable[DemandEntry], groups: Iterable[GroupState | ScaleGroup]
) -> RoutingDecision:
    """Decide which groups make how many slices. The order of `groups` does not matter, that of `entries` does.

    A group as the configuration has it stands for one without any slices.

    Room on slices that others before have asked for is used up first. Else, of the groups that would serve, the one
    of the lowest priority makes one (of equal ones the one that meets more preferences, then the first by name); one
    that is at its `max_slices`, or backs off, is passed over. All slices of a gang come from one group.
    """
    waterfall = _Waterfall(Catalogue(groups))
    return waterfall.run(entries)


class _Wish:
    """What entries that ask for the same have found out. `full`: the groups whose open slices have no room for it."""

    def __init__(self, catalogue: Catalogue, entry: DemandEntry, opened: int) -> None:
        self.serving = catalogue.serving(entry)
        self.preferred = catalogue.preferred(entry)
        self.full = 0
        self.seen = opened  # how many openings it has heard of
        self.reason: UnmetReason | None = None


class _Waterfall:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._openings: dict[int, Openings] = {}
        self._opened: list[int] = []  # whose slices, in the order in which they were asked for
        self._open = 0
        self._with_room = mask_of([rank for rank, state in enumerate(catalogue.states) if state.room])
        self._wishes: dict[_Asked, _Wish] = {}
        self._routed: dict[int, list[DemandEntry]] = {}
        self._unmet: list[UnmetDemand] = []

    def run(self, entries: Iterable[DemandEntry]) -> RoutingDecision:
        for entry in entries:
            wish = self._wish(entry)
            rank = None if entry.invalid_reason else self._find(entry, wish)
            if rank is None:
                self._unmet.append(UnmetDemand(entry=entry, reason=self._reason(entry, wish)))
            else:
                self._routed.setdefault(rank, []).append(entry)
        names = [state.name for state in self._catalogue.states]
        return RoutingDecision(
            launch={names[rank]: self._openings[rank].count for rank in sorted(self._openings)},
            routed={names[rank]: tuple(self._routed[rank]) for rank in sorted(self._routed)},
            unmet=tuple(self._unmet),
        )

    def _wish(self, entry: DemandEntry) -> _Wish:
        asked = _Asked(
            entry.resources,
            entry.shape,
            entry.slices,
            entry.constraints,
            entry.tolerations,
            entry.preemptible,
            entry.required_regions,
        )
        found = self._wishes.get(asked)
        if found is None:
            found = self._wishes[asked] = _Wish(self._catalogue, entry, len(self._opened))
        for rank in self._opened[found.seen :]:
            found.full &= ~(1 << rank)
        found.seen = len(self._opened)
        return found

    def _find(self, entry: DemandEntry, wish: _Wish) -> int | None:
        for rank in positions_of(wish.serving & self._open & ~wish.full):
            if self._openings[rank].take(entry, self._catalogue.seats(entry, rank)):
                return rank
            wish.full |= 1 << rank
        for rank in self._in_order(wish, wish.serving & self._with_room):
            if self._make(entry, rank):
                return rank
        return None

    def _in_order(self, wish: _Wish, groups: int) -> Iterator[int]:
        if not wish.preferred:
            yield from positions_of(groups)
            return
        for tier in self._catalogue.tiers:
            ranks = list(positions_of(tier & groups))
            yield from sorted(ranks, key=lambda rank: -sum(those >> rank & 1 for those in wish.preferred))

    def _make(self, entry: DemandEntry, rank: int) -> bool:
        """Have a group make the slices that an entry needs, if it may."""
        state, seats = self._catalogue.states[rank], self._catalogue.seats(entry, rank)
        openings = self._openings.get(rank) or Openings(state)
        missing = openings.missing_for(entry, seats)
        if missing > self._left(rank):
            return False
        openings.open(missing, self._catalogue.vms(entry, rank))
        self._openings[rank] = openings
        self._opened.append(rank)
        self._open |= 1 << rank
        if openings.count == state.room:
            self._with_room &= ~(1 << rank)
        return openings.take(entry, seats)

    def _left(self, rank: int) -> int:
        """How many slices a group may still be asked for."""
        asked = self._openings[rank].count if rank in self._openings else 0
        return self._catalogue.states[rank].room - asked

    def _reason(self, entry: DemandEntry, wish: _Wish) -> UnmetReason:
        if entry.invalid_reason:
            return UnmetReason(kind=UnmetKind.INVALID, text=f"invalid: {entry.invalid_reason}")
        if wish.reason is None:
            if wish.serving:
                left = [
                    (self._catalogue.states[rank], self._left(rank)) for rank in positions_of(wish.serving)
                ]
                wish.reason = capacity_reason(entry, left)
            else:
                wish.reason = why_nobody_serves(self._catalogue, entry)
        return wish.reason


class _Asked(NamedTuple):
    """What of an entry decides who can serve it."""

    resources: object
    shape: object
    slices: int
    constraints: object
    tolerations: object
    preemptible: object
    required_regions: object
