"""Affinity of jobs to the slices that were created for them.

Without affinity, a job that can run on any slice could be placed on a slice that was created for another job. Then iris
would create one more slice than needed.
"""

from collections.abc import Collection
from copy import copy

from iris_cli.core import Cluster, Job, JobId, Slice, Task, cached_by_argument, slice_of
from iris_cli.core.attributes import SCALE_GROUP_ATTRIBUTE_KEY
from iris_cli.core.constraints import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.scheduling.cycle import SchedulingResult
from iris_cli.core.scheduling.order import build_queue
from iris_cli.core.scheduling.reasons import Reason, ReasonKind, WaitingKey, job_of


class SliceAffinity:
    """Makes each job prefer the scale groups that created slices for it, and keeps other jobs off these slices."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[JobId, dict[str, None]] = {}  # the scale groups that created slices for each job
        for each in cluster.slices.values():
            for job_id in each.wanted_by:
                self._groups.setdefault(job_id, {})[each.group] = None
        self._groups_creating = {each.group for each in cluster.slices.values() if each.is_provisioning}
        # State of the current cycle:
        self._pending_jobs: dict[JobId, None] = {}
        self._jobs_by_group: dict[str, list[JobId]] = {}
        self._queue_positions: dict[JobId, int] = {}

    def get_job(self, job_id: JobId) -> Job | None:
        """Return the job with a preference for the groups that created slices for it."""
        return self._with_preference(job_id) if job_id in self._groups else self._cluster.jobs.get(job_id)

    @cached_by_argument
    def _with_preference(self, job_id: JobId) -> Job | None:
        """Return a copy of a job that prefers its groups above all. iris chose them by the job's preferences."""
        job = self._cluster.jobs.get(job_id)
        if job is None:
            return None
        key, groups = SCALE_GROUP_ATTRIBUTE_KEY, sorted(self._groups[job_id])
        preference = Constraint.of(key, ConstraintOp.IN, values=groups, mode=ConstraintMode.PREFERRED)
        weight = 1 + sum(not each.required for each in job.constraints)
        result = copy(job)
        result.constraints = (*job.constraints, *[preference] * weight)
        return result

    def reasons_to_wait(
        self, result: SchedulingResult, held_back: Collection[WaitingKey]
    ) -> dict[WaitingKey, Reason]:
        """Return the reason for each task and gang that must not use a slice created for another job.

        In `result` they are placed on such a slice, or would be placed there if other tasks were held back. `held_back`
        has the results of earlier calls in this cycle. A job must wait only while iris creates a slice for it, or while
        a gang ahead of it in the queue waits for more slices.
        """
        on_foreign_slices = self._on_other_jobs_slices(result) if self._groups_creating else []
        if not on_foreign_slices:
            return {}
        self._pending_jobs = dict.fromkeys(job_of(key) for key in (*result.waiting, *held_back))
        jobs = dict.fromkeys((*self._pending_jobs, *(job_of(key) for key, _ in on_foreign_slices)))
        self._jobs_by_group = {}
        for job in jobs:
            for group in self._groups.get(job, ()):
                self._jobs_by_group.setdefault(group, []).append(job)
        queue = build_queue(dict[JobId, list[Task]]((job, []) for job in jobs), self.get_job, 0.0)
        self._queue_positions = {job: turn for turn, (_, _, job, *_) in enumerate(queue.entries)}
        found: dict[WaitingKey, Reason] = {}
        protected: dict[str, Slice] = {}  # one slice of each group with slices that some jobs must not use
        for key, known in on_foreign_slices:
            why = self._why_forbidden(job_of(key), known)
            if why and key not in found:
                found[key] = Reason(kind=ReasonKind.RESERVED, text=why)
                protected.setdefault(known.group, known)
        reasons = {
            job: next(filter(None, (self._why_forbidden(job, known) for known in protected.values())), "")
            for job in self._pending_jobs
        }
        for key in result.waiting:
            if why := reasons[job_of(key)]:
                found[key] = Reason(kind=ReasonKind.RESERVED, text=why)
        return found

    def _why_forbidden(self, job: JobId, known: Slice) -> str:
        """Return why a job must not use a slice; "" if it may."""
        own_groups, owners = self._groups.get(job, {}), self._jobs_by_group.get(known.group, ())
        if known.group in own_groups:
            return ""
        if not self._groups_creating.isdisjoint(own_groups):
            return f"its own slice is being created; {known.name} is for {owners[0]}" if owners else ""
        if self._cluster.jobs[job].resources.device is None:
            return ""
        first = next((each for each in owners if self._waits_for_more(each, job)), None)
        return f"{known.name} is for {first}, which needs more slices" if first else ""

    def _waits_for_more(self, gang: JobId, job: JobId) -> bool:
        """Return whether a gang of several slices is ahead of a job and waits for slices that are being created."""
        is_pending = gang in self._pending_jobs and self._cluster.jobs[gang].slices > 1
        is_creating = not self._groups_creating.isdisjoint(self._groups[gang])
        return is_pending and is_creating and self._queue_positions[gang] < self._queue_positions[job]

    def _on_other_jobs_slices(self, result: SchedulingResult) -> list[tuple[WaitingKey, Slice]]:
        """Return the tasks and gangs placed on a slice of a group that has no slice for them, each with this slice."""
        found: list[tuple[WaitingKey, Slice]] = []
        for each in result.assignments:
            job_id, known = each.task.job, self._cluster.slices.get(slice_of(each.worker))
            if known is not None and known.group not in self._groups.get(job_id, {}):
                found.append((job_id if self._cluster.jobs[job_id].is_gang else each.task, known))
        return found
