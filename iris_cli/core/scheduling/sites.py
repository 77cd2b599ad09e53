"""The groups that may serve one gang together: of one device variant and one region, of one zone if possible."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core import AttributeValue
from iris_cli.core.constraints import DEVICE_VARIANT_ATTRIBUTE_KEY, REGION_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.placement import Requirement, has_shape

VARIANT, REGION, ZONE = 1, 2, 3
"""How much the groups of a site share: the device variant, also the region, also the zone."""


Place = tuple[AttributeValue | None, ...]
"""A device variant, a region and a zone, or only the first of them: what some workers share.

None stands for workers without the attribute: they count as one region (or zone, or variant) of their own. Work that
needs no device is nowhere by its variant, which is None then.
"""


class Sites:
    """The groups that have the shape of a gang, by number, divided into the sites that may serve it.

    `tiers`: the sites that share a zone, those that share a region and, for a job with `spread`, those that share a
    device variant. Each site has as many groups as the gang needs, or more. A gang of one group has one site.
    """

    def __init__(self, fleet: Fleet, requirement: Requirement) -> None:
        shape, job = requirement.shape, requirement.job
        assert shape is not None
        groups = [group for group in fleet.groups(shape.group_by).groups if has_shape(group, shape)]
        self.needed = shape.groups
        self.reach = VARIANT if job.spread else REGION
        self._places: dict[int, Place] = {}
        self.tiers: list[list[list[int]]] = [[[group.number for group in groups]]]
        if self.needed > 1:
            there = places(fleet, plain=requirement.plain)
            for group in groups:
                self._places[group.number] = common(there[each] for each in group.members)
            self.tiers = [
                [site for site in self.divided(self._places, depth).values() if len(site) >= self.needed]
                for depth in range(ZONE, self.reach - 1, -1)
            ]

    def serve(self, groups: Iterable[int]) -> bool:
        """Whether enough of these groups are at one site."""
        return len(self.largest(groups, self.reach)) >= self.needed

    def largest(self, groups: Iterable[int], depth: int) -> list[int]:
        """As many of these groups as share that much; of equally many the first by number."""
        if self.needed == 1:
            return list(groups)
        return max(self.divided(groups, depth).values(), key=len, default=[])

    def regions(self, groups: Iterable[int]) -> int:
        """The number of regions that these groups are in. A group that is in several counts as one more."""
        places = [(number, self.place_of(number)) for number in groups]
        return len({place[:REGION] if len(place) >= REGION else number for number, place in places})

    def place_of(self, group: int) -> Place:
        """What the members of a group share."""
        return self._places[group]

    def variants(self, groups: Iterable[int]) -> dict[str, int]:
        """The number of these groups by device variant."""
        sites = self.divided(groups, VARIANT).items()
        return {str(variant or "no variant"): len(site) for (variant,), site in sites}

    def divided(self, groups: Iterable[int], depth: int) -> dict[Place, list[int]]:
        """The groups by what they share, that much of it; those whose own members do not share it are left out."""
        found: dict[Place, list[int]] = {}
        for number in groups:
            place = self._places[number]
            if len(place) >= depth:
                found.setdefault(place[:depth], []).append(number)
        return found


def places(fleet: Fleet, *, plain: bool) -> list[Place]:
    """The place of each worker, by position; of those that serve `plain` work, which needs no device."""
    variants = [None] * len(fleet.workers) if plain else fleet.values(DEVICE_VARIANT_ATTRIBUTE_KEY)
    return list(
        zip(variants, fleet.values(REGION_ATTRIBUTE_KEY), fleet.values(ZONE_ATTRIBUTE_KEY), strict=True)
    )


def common(places: Iterable[Place]) -> Place:
    """What these places share. Raises StopIteration if there are none."""
    there = iter(places)
    shared = next(there)
    for place in there:
        while place[: len(shared)] != shared:
            shared = shared[:-1]
    return shared
