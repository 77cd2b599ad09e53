"""For whom slices were made: they are the first choice of those.

Else who may run anywhere might take the very slice that another one had made for it, and needs: then one more would be
made, for nothing.
"""

from __future__ import annotations

from iris_cli.core.attributes import SCALE_GROUP_ATTRIBUTE_KEY
from iris_cli.core.cluster import Cluster
from iris_cli.core.constraint_types import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.dataclass import replace
from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.job import Job
from iris_cli.core.scheduling.cycle import SchedulingResult
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.slice import Slice, slice_of


class Homes:
    """The scale groups that made slices for jobs, and the jobs as a cycle looks at them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[JobId, dict[str, None]] = {}
        for each in cluster.slices.values():
            for job_id in each.wanted_by:
                self._groups.setdefault(job_id, {})[each.group] = None
        self._coming = {each.group for each in cluster.slices.values() if each.coming}
        self._made: dict[JobId, Job] = {}

    def job(self, job_id: JobId) -> Job | None:
        """The job, which prefers the groups that made slices for it to all others."""
        job = self._cluster.jobs.get(job_id)
        if job is None or job_id not in self._groups:
            return job
        if job_id not in self._made:
            self._made[job_id] = _preferring(job, sorted(self._groups[job_id]))
        return self._made[job_id]

    def waiting_for_theirs(self, result: SchedulingResult) -> dict[JobId, Reason]:
        """The gangs of a cycle that take a slice made for another one, which waits, while one of their own is on its
        way; and those that would be the next to take it.
        """
        found: dict[JobId, Reason] = {}
        for assignment in result.assignments if self._groups else ():
            gang, known = assignment.task.job, self._cluster.slices.get(slice_of(assignment.worker))
            if known is None or gang in found or not self._may_wait(gang, known):
                continue
            owners = (key.job if isinstance(key, TaskId) else key for key in result.waiting)
            owner = next((job for job in owners if known.group in self._groups.get(job, {})), None)
            if owner is None:
                continue
            gangs = (key for key in result.waiting if not isinstance(key, TaskId))
            next_ones = (key for key in gangs if self._may_wait(key, known))
            text = f"its own slice is being made, and {known.name} was made for {owner}"
            found |= dict.fromkeys([gang, *next_ones], Reason(kind=ReasonKind.RESERVED, text=text))
        return found

    def _may_wait(self, gang: JobId, other: Slice) -> bool:
        """Whether a gang has a slice coming, in another group than that of this slice."""
        groups = self._groups.get(gang, {})
        on_its_way = other.group not in groups and not self._coming.isdisjoint(groups)
        return on_its_way and self._cluster.jobs[gang].is_gang


def _preferring(job: Job, groups: list[str]) -> Job:
    """More often than it prefers anything else: routing has weighed that already."""
    home = Constraint(
        SCALE_GROUP_ATTRIBUTE_KEY, ConstraintOp.IN, values=groups, mode=ConstraintMode.PREFERRED
    )
    times = 1 + sum(not each.required for each in job.constraints)
    return replace(job, constraints=(*job.constraints, *[home] * times))
