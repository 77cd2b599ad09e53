"""Groups of workers that are idle after a dry run: a gang that needs several uses these before new ones are made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.capacity import Amounts
from iris_cli.core.model.job import Job
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.worker import Worker
from iris_cli.core.scheduling import SchedulingResult
from iris_cli.core.scheduling.capacity import positions_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain.verdicts import fits
from iris_cli.core.scheduling.feasibility import Requirement
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.sites import ZONE, Place, Sites, common


class IdleSite(NamedTuple):
    """Idle groups that may serve one gang together, `slices` of them, and their workers. `place`: what they share."""

    place: Place
    slices: int
    workers: frozenset[WorkerId]


class Leftovers:
    """The workers that nothing runs on and nothing was placed on. What is kept for one gang no other gang gets."""

    def __init__(self, result: SchedulingResult, workers: Sequence[Worker], now: float) -> None:
        self._workers = workers
        self._now = now
        self._placed = frozenset(each.worker for each in result.assignments)
        self._kept: set[WorkerId] = set()
        self.kept_for: dict[JobId, tuple[IdleSite, ...]] = {}

    @property
    def placed(self) -> frozenset[WorkerId]:
        """The workers that got something."""
        return self._placed

    def keep_for(self, job: Job) -> tuple[IdleSite, ...]:
        """Keep the groups that serve a gang, at each site fewer than it needs. The site with the most is first."""
        context = SchedulingContext(self._fleet, [Amounts.needed(job.resources)])
        requirement = Requirement(job, context)
        shape, sites = requirement.shape, Sites(self._fleet, requirement)
        assert shape is not None
        free = requirement.candidates(context)
        groups = self._fleet.groups(shape.group_by).groups
        names = {
            group.number: [self._fleet.ids[position] for position in positions_of(group.mask & free)]
            for group in groups
            if fits(group, shape, free)
        }
        unkept = [number for number, those in names.items() if self._kept.isdisjoint(those)]
        found = []
        for site in sites.divided(unkept, sites.reach).values():
            zone = sites.largest(site, ZONE)
            chosen = [*zone, *(number for number in site if number not in zone)][: shape.groups - 1]
            place = common(sites.place_of(number) for number in chosen)
            workers = frozenset(worker for number in chosen for worker in names[number])
            found.append(IdleSite(place, len(chosen), workers))
            self._kept |= workers
        self.kept_for[job.id] = tuple(sorted(found, key=lambda site: -site.slices))
        return self.kept_for[job.id]

    @cached_property
    def _fleet(self) -> Fleet:
        idle = [each for each in self._workers if not each.claims and each.id not in self._placed]
        return Fleet(idle, self._now, Limits(), ())
