"""A slice that was made for somebody is the first choice of those it was made for.

Else who may run anywhere might take the very slice that another one had made for it, and needs: then one more would be
made. It is a preference and no reservation: who comes first in the queue never waits for a slice while another one
would do.
"""

from __future__ import annotations

from collections.abc import Callable

from iris_cli.core.attributes import SCALE_GROUP_ATTRIBUTE_KEY
from iris_cli.core.cluster import Cluster
from iris_cli.core.constraint_types import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.dataclass import replace
from iris_cli.core.ids import JobId
from iris_cli.core.job import Job


def at_home(cluster: Cluster) -> Callable[[JobId], Job | None]:
    """The jobs of a cluster as a cycle looks at them: each prefers the scale groups that made slices for it."""
    homes: dict[JobId, dict[str, None]] = {}
    for each in cluster.slices.values():
        for job_id in each.wanted_by:
            homes.setdefault(job_id, {})[each.group] = None
    if not homes:
        return cluster.jobs.get

    def known(job_id: JobId) -> Job | None:
        job = cluster.jobs.get(job_id)
        if job is None or job_id not in homes:
            return job
        if job_id not in made:
            made[job_id] = _preferring(job, sorted(homes[job_id]))
        return made[job_id]

    made: dict[JobId, Job] = {}
    return known


def _preferring(job: Job, groups: list[str]) -> Job:
    """More often than it prefers anything else: routing has weighed that already."""
    home = Constraint(
        SCALE_GROUP_ATTRIBUTE_KEY, ConstraintOp.IN, values=groups, mode=ConstraintMode.PREFERRED
    )
    times = 1 + sum(not each.required for each in job.constraints)
    return replace(job, constraints=(*job.constraints, *[home] * times))
