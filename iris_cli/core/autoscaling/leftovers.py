"""Groups of workers that nobody got in a dry run: a gang that needs several takes these before new ones are made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from iris_cli.core.capacity import Amounts
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.limits import Limits
from iris_cli.core.scheduling import SchedulingResult
from iris_cli.core.scheduling.capacity import positions_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.feasibility import Requirement
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.verdicts import fits
from iris_cli.core.worker import Worker


class Leftovers:
    """The workers that nothing runs on, and nothing was placed on. What one gang is to have no other one gets."""

    def __init__(self, result: SchedulingResult, workers: Sequence[Worker], now: float) -> None:
        self._workers = workers
        self._now = now
        self._placed = frozenset(each.worker for each in result.assignments)
        self._kept: set[WorkerId] = set()
        self.kept_for: dict[JobId, frozenset[WorkerId]] = {}

    @property
    def placed(self) -> frozenset[WorkerId]:
        """The workers that got something."""
        return self._placed

    def keep_for(self, job: Job, most: int) -> int:
        """Keep groups that serve a gang, so many at most; how many there were."""
        context = SchedulingContext(self._fleet, [Amounts.needed(job.resources)])
        requirement = Requirement(job, context)
        assert requirement.shape is not None
        free = requirement.candidates(context)
        found, names_found = 0, set[WorkerId]()
        for group in self._fleet.groups(requirement.shape.group_by).groups:
            names = [self._fleet.ids[position] for position in positions_of(group.mask & free)]
            if found < most and fits(group, requirement.shape, free) and self._kept.isdisjoint(names):
                names_found.update(names)
                found += 1
        if found:
            self._kept |= names_found
            self.kept_for[job.id] = frozenset(names_found)
        return found

    @cached_property
    def _fleet(self) -> Fleet:
        idle = [each for each in self._workers if not each.claims and each.id not in self._placed]
        return Fleet(idle, self._now, Limits(), ())
