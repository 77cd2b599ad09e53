"""Affinity of jobs to the slices that were created for them.

Otherwise a job that can run on any slice might take a slice created for another job that needs it; then another slice
would be created needlessly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy

from iris_cli.core import Cluster, Job, JobId, Slice, TaskId, slice_of
from iris_cli.core.attributes import SCALE_GROUP_ATTRIBUTE_KEY
from iris_cli.core.constraints import Constraint, ConstraintMode, ConstraintOp
from iris_cli.core.scheduling.cycle import SchedulingResult, WaitingKey
from iris_cli.core.scheduling.order import TasksByJob, queue_of
from iris_cli.core.scheduling.reasons import Reason, ReasonKind


class SliceAffinity:
    """The scale groups that created slices for jobs, and the jobs with matching preferences."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[JobId, dict[str, None]] = {}
        for each in cluster.slices.values():
            for job_id in each.wanted_by:
                self._groups.setdefault(job_id, {})[each.group] = None
        self._coming = {each.group for each in cluster.slices.values() if each.coming}
        self._made: dict[JobId, Job] = {}
        # State of the cycle being examined:
        self._lacking: dict[JobId, None] = {}
        self._owners: dict[str, list[JobId]] = {}
        self._turns: dict[JobId, int] = {}

    def job(self, job_id: JobId) -> Job | None:
        """Return the job with a preference for the groups that created slices for it."""
        job = self._cluster.jobs.get(job_id)
        if job is None or job_id not in self._groups:
            return job
        if job_id not in self._made:
            self._made[job_id] = _preferring(job, sorted(self._groups[job_id]))
        return self._made[job_id]

    def must_wait(self, result: SchedulingResult, held: Collection[WaitingKey]) -> dict[WaitingKey, Reason]:
        """Return the entries that take a slice created for another job and must wait instead, and those that
        would take it next; also those `held` for that reason before. They wait only while slices are being
        created: their own, or others of a gang ahead of them that needs several.
        """
        away = self._away(result) if self._coming else []
        if not away:
            return {}
        self._lacking = dict.fromkeys(_job_of(key) for key in (*result.waiting, *held))
        jobs = dict.fromkeys((*self._lacking, *(_job_of(key) for key, _ in away)))
        self._owners = self._by_group(jobs)
        self._turns = self._turns_of(jobs)
        found: dict[WaitingKey, Reason] = {}
        wanted: dict[str, Slice] = {}  # one slice of each group with an objection
        for key, known in away:
            why = self._objection(_job_of(key), known)
            if why and key not in found:
                found[key] = Reason(kind=ReasonKind.RESERVED, text=why)
                wanted.setdefault(known.group, known)
        next_ones = {job: self._objection_to_any(job, wanted.values()) for job in self._lacking}
        for key in result.waiting:
            if why := next_ones[_job_of(key)]:
                found[key] = Reason(kind=ReasonKind.RESERVED, text=why)
        return found

    def _objection_to_any(self, job: JobId, slices: Iterable[Slice]) -> str:
        return next((why for known in slices if (why := self._objection(job, known))), "")

    def _objection(self, job: JobId, known: Slice) -> str:
        """Return why a job must not take a slice, "" if it may."""
        mine, owners = self._groups.get(job, {}), self._owners.get(known.group, ())
        if known.group in mine:
            return ""
        if not self._coming.isdisjoint(mine):
            return f"its own slice is being created; {known.name} is for {owners[0]}" if owners else ""
        if self._cluster.jobs[job].resources.device is None:
            return ""
        first = next((each for each in owners if self._is_incomplete(each, job)), None)
        return f"{known.name} is for {first}, which needs more slices" if first else ""

    def _is_incomplete(self, gang: JobId, job: JobId) -> bool:
        """Return whether a gang of several slices waits for some that are being created, and is ahead of a job."""
        several = gang in self._lacking and self._cluster.jobs[gang].slices > 1
        more_coming = not self._coming.isdisjoint(self._groups[gang])
        return several and more_coming and self._turns[gang] < self._turns[job]

    def _by_group(self, jobs: Iterable[JobId]) -> dict[str, list[JobId]]:
        """Return the jobs for which each group created slices."""
        found: dict[str, list[JobId]] = {}
        for job in jobs:
            for group in self._groups.get(job, ()):
                found.setdefault(group, []).append(job)
        return found

    def _turns_of(self, jobs: Iterable[JobId]) -> dict[JobId, int]:
        alone: TasksByJob = {job: [] for job in jobs}
        queue = queue_of(alone, self.job, 0.0)
        return {job: turn for turn, (_, _, job, *_) in enumerate(queue.entries)}

    def _away(self, result: SchedulingResult) -> list[tuple[WaitingKey, Slice]]:
        """Return the entries placed on slices of groups that created none for them, with these slices."""
        found: list[tuple[WaitingKey, Slice]] = []
        for each in result.assignments:
            job_id, known = each.task.job, self._cluster.slices.get(slice_of(each.worker))
            if known is not None and known.group not in self._groups.get(job_id, {}):
                found.append((job_id if self._cluster.jobs[job_id].is_gang else each.task, known))
        return found


def _job_of(key: WaitingKey) -> JobId:
    return key.job if isinstance(key, TaskId) else key


def _preferring(job: Job, groups: list[str]) -> Job:
    """Return the job with a preference for these groups that outweighs all others: routing has weighed those."""
    home = Constraint.of(
        SCALE_GROUP_ATTRIBUTE_KEY, ConstraintOp.IN, values=groups, mode=ConstraintMode.PREFERRED
    )
    times = 1 + sum(not each.required for each in job.constraints)
    drawn = copy(job)
    drawn.constraints = (*job.constraints, *[home] * times)
    return drawn
