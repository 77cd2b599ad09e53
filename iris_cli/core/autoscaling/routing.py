"""Choose the scale groups that create slices for each DemandEntry."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import sub
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, Amounts, ScaleGroup, gc_paused
from iris_cli.core.autoscaling.catalogue import Catalogue, UnmetKind, UnmetReason, why_unmet
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.scheduling.placement import REGION, VARIANT, ZONE, Location
from iris_cli.core.scheduling.sets import mask_of, positions_of

OpenVm = tuple[int, int]
"""The index of an open slice, and the number of one of its VMs. In this module, `suitable_vms` are numbers of VMs."""


class OpenSlices:
    """The slices that a group will create in this pass (open slices), and the amounts that are free on their VMs.

    Slices are only added, and free amounts only shrink. So a search skips all VMs that an earlier search for the same
    need found full. `_search_from` has the index of the first slice (key: need, None) or of the first suitable VM (key:
    need, numbers of suitable VMs) that may be free.
    """

    def __init__(self, state: GroupState) -> None:
        self.state = state
        self.count = 0
        self._free_by_slice: list[list[Amounts]] = []
        self._search_from: dict[tuple[Amounts, tuple[int, ...] | None], int] = {}

    def add_slices(self, slices: int, vms: int) -> None:
        self.count += slices
        self._free_by_slice += [[self.state.vm_size] * vms for _ in range(slices)]

    def take(self, entry: DemandEntry, suitable_vms: tuple[int, ...]) -> bool:
        """Take the room that an entry needs on open slices; return False if there is too little."""
        need = Amounts.needed(entry.resources)
        if entry.shape is None:
            vm = self._find_free_vm(need, suitable_vms)
            return vm is not None and self._occupy([vm], need)
        slices = entry.shape.size if _groups_by_other_attribute(entry) else 1
        return self.take_slices(entry, suitable_vms, slices)

    def take_slices(self, entry: DemandEntry, suitable_vms: tuple[int, ...], slices: int) -> bool:
        """Take the room that a gang needs on this many slices; return False if there is too little."""
        need = Amounts.needed(entry.resources)
        groups = self._free_vms_by_group(need, entry, suitable_vms, slices)
        return len(groups) == slices and self._occupy([vm for vms in groups for vm in vms], need)

    def count_free_slices(self, entry: DemandEntry, suitable_vms: tuple[int, ...], limit: int) -> int:
        """Return the number of open slices with room for one group of a gang, at most `limit`."""
        return len(self._free_vms_by_group(Amounts.needed(entry.resources), entry, suitable_vms, limit))

    def count_missing_slices(self, entry: DemandEntry, suitable_vms: tuple[int, ...]) -> int:
        """Return the number of slices that an entry needs in addition to the open slices."""
        if entry.shape is None:
            return 1
        need = Amounts.needed(entry.resources)
        if _groups_by_other_attribute(entry):
            free = len(self._free_vms_by_group(need, entry, suitable_vms, entry.shape.size))
            return -(-(entry.shape.size - free) // max(1, len(suitable_vms)))
        return 1 - self.count_free_slices(entry, suitable_vms, 1)

    def _free_vms_by_group(
        self, need: Amounts, entry: DemandEntry, suitable_vms: tuple[int, ...], limit: int
    ) -> list[list[OpenVm]]:
        """Return, for at most `limit` groups of a gang, the free VMs for the group.

        If the gang's groups are not slices, return one free VM for each of at most `limit` tasks.
        """
        assert entry.shape is not None
        if _groups_by_other_attribute(entry):
            free = (
                (index, vm)
                for index, free_amounts in enumerate(self._free_by_slice)
                for vm in suitable_vms
                if free_amounts[vm].covers(need)
            )
            return [[vm] for vm in islice(free, limit)]
        found: list[list[OpenVm]] = []
        for index in range(self._search_from.get((need, None), 0), len(self._free_by_slice)):
            free_amounts = self._free_by_slice[index]
            fitting = [(index, vm) for vm in suitable_vms if free_amounts[vm].covers(need)]
            if len(fitting) >= entry.shape.size:
                found.append(fitting[: entry.shape.size])
                if len(found) == limit:
                    break
        if entry.shape.whole:
            self._search_from[need, None] = found[0][0][0] if found else len(self._free_by_slice)
        return found

    def _find_free_vm(self, need: Amounts, suitable_vms: tuple[int, ...]) -> OpenVm | None:
        start, per_slice = self._search_from.get((need, suitable_vms), 0), len(suitable_vms)
        end = len(self._free_by_slice) * per_slice
        for at in range(start, end):
            index, vm = at // per_slice, suitable_vms[at % per_slice]
            if self._free_by_slice[index][vm].covers(need):
                self._search_from[need, suitable_vms] = at
                return index, vm
        self._search_from[need, suitable_vms] = end
        return None

    def _occupy(self, vms: list[OpenVm], need: Amounts) -> bool:
        for index, vm in vms:
            self._free_by_slice[index][vm] = Amounts(*map(sub, self._free_by_slice[index][vm], need))
        return True


def _groups_by_other_attribute(entry: DemandEntry) -> bool:
    """Return whether a gang's groups are not slices. If so, all slices of a scale group together form one group."""
    return entry.shape is not None and entry.shape.group_by != TPU_NAME_ATTRIBUTE_KEY


class Site(NamedTuple):
    """Scale groups that could together supply the `needed` slices of a gang: they share zone, region or variant.

    `indexes` are the groups in the order in which they are tried; `groups` is the set of these groups.
    """

    indexes: tuple[int, ...]
    groups: int
    needed: int


def list_sites(catalogue: Catalogue, entry: DemandEntry, indexes: Sequence[int]) -> Iterator[Site]:
    """Yield the sites for a gang, the best first. `indexes` are the groups that could serve it, in order.

    Sites with more idle slices come first. Among equal numbers of idle slices, sites in one zone come first, then sites
    in one region, then (with `spread`) all other sites. Then a site of one group precedes sites of several groups, and
    the order of the sites' first groups decides.
    """
    idle = [(site.location, site.groups) for site in entry.idle]
    most_idle = idle[0][1] if idle else 0
    for location, slices in (*idle, ((), 0)):
        for depth in range(ZONE, (VARIANT if entry.spread else REGION) - 1, -1):
            if 0 < len(location) < depth:
                continue  # the idle slices are in several zones or regions
            matching = [
                index
                for index in indexes
                if catalogue.location(entry, index)[: min(depth, len(location))] == location[:depth]
            ]
            by_location: dict[Location, list[int]] = {}
            for index in matching:
                by_location.setdefault(catalogue.location(entry, index)[:depth], []).append(index)
            for members in (*([index] for index in matching), *by_location.values()):
                yield Site(tuple(members), mask_of(members), entry.slices + most_idle - slices)


class UnmetDemand(Struct, frozen=True, kw_only=True):
    """A DemandEntry for which no group creates a slice, with the reason."""

    entry: DemandEntry
    reason: UnmetReason


class RoutingDecision(Struct, frozen=True, kw_only=True):
    """The number of slices that each group should create, the entries `routed` to them, and the `unmet` entries."""

    launch: Mapping[str, int]
    routed: Mapping[str, tuple[DemandEntry, ...]]
    unmet: tuple[UnmetDemand, ...]


@gc_paused
def route_demand(
    entries: Iterable[DemandEntry], groups: Iterable[GroupState | ScaleGroup]
) -> RoutingDecision:
    """Decide how many slices each group creates. Earlier `entries` come first; the order of `groups` has no effect.

    A ScaleGroup stands for a group without slices. An entry first uses room on slices requested for earlier entries. If
    there is no room, the suitable group with the lowest priority creates a slice. Among groups of equal priority, the
    group that meets more preferences creates it, then the first by name. A group at its `max_slices` or in back-off is
    skipped. All slices of a gang, including idle slices, have one device variant and one region, if possible one zone.
    iris prefers the zone or region with the most idle slices, then the order of groups.
    """
    return _Router(Catalogue(groups)).run(entries)


class _Search:
    """The search for entries with equal requirements. `full`: groups whose open slices have no room for another one."""

    def __init__(self, catalogue: Catalogue, entry: DemandEntry, opened: int) -> None:
        self.serving = catalogue.groups_serving(entry)
        preferences = (each for each in entry.constraints if not each.required)
        self.preferred = list(map(catalogue.fleet.workers_satisfying, preferences))
        self.full = 0
        # Lengths of `_opened_groups`: at the last search that found no site, and at the last update of `full`.
        self.failed_at, self.seen = -1, opened
        self.sites: list[Site] | None = None
        self.reason: UnmetReason | None = None


class _Router:
    """Routes the entries of one pass."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._open_slices = [OpenSlices(state) for state in catalogue.states]
        self._opened_groups: list[int] = []  # the groups of all openings, in order, with repetitions
        self._open_groups = 0  # the groups with open slices
        self._groups_with_room = mask_of([index for index, each in enumerate(catalogue.states) if each.room])
        self._searches: dict[tuple[object, ...], _Search] = {}
        self._routed: dict[int, list[DemandEntry]] = {}
        self._unmet: list[UnmetDemand] = []

    def run(self, entries: Iterable[DemandEntry]) -> RoutingDecision:
        for entry in entries:
            search = self._search_of(entry)
            indexes = [] if entry.invalid_reason else self._serve(entry, search)
            if not indexes:
                self._unmet.append(UnmetDemand(entry=entry, reason=self._reason(entry, search)))
            for index in indexes:
                self._routed.setdefault(index, []).append(entry)
        states = self._catalogue.states
        return RoutingDecision(
            launch={each.state.name: each.count for each in self._open_slices if each.count},
            routed={states[index].name: tuple(self._routed[index]) for index in sorted(self._routed)},
            unmet=tuple(self._unmet),
        )

    def _search_of(self, entry: DemandEntry) -> _Search:
        _, *requirements = astuple(entry)  # all fields except the ids of tasks
        key = tuple(requirements)
        found = self._searches.get(key)
        if found is None:
            found = self._searches[key] = _Search(self._catalogue, entry, len(self._opened_groups))
        for index in self._opened_groups[found.seen :]:
            found.full &= ~(1 << index)
        found.seen = len(self._opened_groups)
        return found

    def _serve(self, entry: DemandEntry, search: _Search) -> list[int]:
        """Take room for an entry. Return the groups whose slices it uses; [] if no group has room."""
        if entry.shape is not None and entry.shape.groups > 1:
            return self._serve_at_one_site(entry, search)
        for index in positions_of(search.serving & self._open_groups & ~search.full):
            if self._open_slices[index].take(entry, self._catalogue.suitable_vms(entry, index)):
                return [index]
            search.full |= 1 << index
        for index in self._groups_in_order(search, search.serving & self._groups_with_room):
            if self._open_needed(entry, index):
                return [index]
        return []

    def _serve_at_one_site(self, entry: DemandEntry, search: _Search) -> list[int]:
        if search.failed_at == len(self._opened_groups):
            return []
        if search.sites is None:
            indexes = list(self._groups_in_order(search, search.serving))
            search.sites = list(dict.fromkeys(list_sites(self._catalogue, entry, indexes)))
        for create in (False, True):
            usable_groups = self._open_groups | self._groups_with_room if create else self._open_groups
            for site in search.sites:
                if not site.groups & usable_groups:
                    continue
                shares = self._slices_by_group(entry, site, create=create)
                if sum(shares.values()) == site.needed:
                    for index, slices in shares.items():
                        self._take_slices(entry, index, slices)
                    return list(shares)
        search.failed_at = len(self._opened_groups)
        return []

    def _slices_by_group(self, entry: DemandEntry, site: Site, *, create: bool) -> dict[int, int]:
        """Return the number of slices that each group of a site supplies: open slices, and new slices if `create`."""
        shares, missing = dict[int, int](), site.needed
        for index in site.indexes:
            if missing and self._open_groups >> index & 1:
                suitable_vms = self._catalogue.suitable_vms(entry, index)
                shares[index] = self._open_slices[index].count_free_slices(entry, suitable_vms, missing)
                missing -= shares[index]
        for index in site.indexes if create else ():
            created = min(missing, self._count_creatable(index))
            shares[index] = shares.get(index, 0) + created
            missing -= created
        return {index: slices for index, slices in shares.items() if slices}

    def _take_slices(self, entry: DemandEntry, index: int, slices: int) -> None:
        """Take slices of a group for an entry. Open new slices if too few open slices have room."""
        suitable_vms, open_slices = self._catalogue.suitable_vms(entry, index), self._open_slices[index]
        missing = slices - open_slices.count_free_slices(entry, suitable_vms, slices)
        if missing:
            self._open_more(entry, index, missing)
        open_slices.take_slices(entry, suitable_vms, slices)

    def _groups_in_order(self, search: _Search, groups: int) -> Iterator[int]:
        """Yield the groups by priority, then by number of met preferences, then by name."""
        if not search.preferred:
            yield from positions_of(groups)
            return
        for tier in self._catalogue.tiers:
            indexes = list(positions_of(tier & groups))
            yield from sorted(indexes, key=lambda index: -sum(each >> index & 1 for each in search.preferred))

    def _open_needed(self, entry: DemandEntry, index: int) -> bool:
        """Open the slices that an entry needs in a group, and take them. Return False if it can't create enough."""
        suitable_vms, open_slices = self._catalogue.suitable_vms(entry, index), self._open_slices[index]
        missing = open_slices.count_missing_slices(entry, suitable_vms)
        if missing > self._count_creatable(index):
            return False
        self._open_more(entry, index, missing)
        return open_slices.take(entry, suitable_vms)

    def _open_more(self, entry: DemandEntry, index: int, slices: int) -> None:
        self._open_slices[index].add_slices(slices, self._catalogue.vms(entry, index))
        self._opened_groups.append(index)
        self._open_groups |= 1 << index
        if not self._count_creatable(index):
            self._groups_with_room &= ~(1 << index)

    def _count_creatable(self, index: int) -> int:
        return self._catalogue.states[index].room - self._open_slices[index].count

    def _reason(self, entry: DemandEntry, search: _Search) -> UnmetReason:
        if entry.invalid_reason:
            return UnmetReason(kind=UnmetKind.INVALID, text=entry.invalid_reason)
        if search.reason is None:
            creatable = {index: self._count_creatable(index) for index in positions_of(search.serving)}
            search.reason = why_unmet(self._catalogue, entry, creatable)
        return search.reason
