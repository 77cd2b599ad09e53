"""Where a gang of several slices could have them: at one site, beside those that are idle there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from iris_cli.core.autoscaling.catalogue import Catalogue
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.scheduling.capacity import mask_of
from iris_cli.core.scheduling.sites import REGION, VARIANT, ZONE, Place


class Site(NamedTuple):
    """Scale groups of one place that give `needed` slices together, in the order in which they do; also as a set."""

    ranks: tuple[int, ...]
    groups: int
    needed: int


def sites_for(catalogue: Catalogue, entry: DemandEntry, ranks: Sequence[int]) -> Iterator[Site]:
    """The sites of a gang in the order in which they are tried. `ranks` are the groups that serve it, in order.

    First where most slices are idle, last where none is; each time within one zone, then one region and, with `spread`,
    anywhere. Each time one group alone goes before several, and otherwise the site with the first of the groups.
    """
    idle = [(site.place, site.slices) for site in entry.idle]
    most = idle[0][1] if idle else 0
    for place, slices in (*idle, ((), 0)):
        for depth in range(ZONE, (VARIANT if entry.spread else REGION) - 1, -1):
            if 0 < len(place) < depth:
                continue  # the idle slices themselves share less
            near = [
                rank
                for rank in ranks
                if catalogue.place(entry, rank)[: min(depth, len(place))] == place[:depth]
            ]
            together: dict[Place, list[int]] = {}
            for rank in near:
                together.setdefault(catalogue.place(entry, rank)[:depth], []).append(rank)
            for those in (*([rank] for rank in near), *together.values()):
                yield Site(tuple(those), mask_of(those), entry.slices + most - slices)
