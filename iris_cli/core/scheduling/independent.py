"""The part of a plan that does not depend on workers that have not answered their poll."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from iris_cli.core import Amounts, Cluster, Job, JobId, Limits, Signature, WorkerCondition, WorkerId
from iris_cli.core.constraints import DEVICE_TYPE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.order import TasksByJob, build_queue
from iris_cli.core.scheduling.placement import Assignment, shape_of
from iris_cli.core.scheduling.plan import Plan
from iris_cli.core.scheduling.reasons import job_of
from iris_cli.core.scheduling.sets import mask_of

_UNKNOWN = frozenset({WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED})
"""Conditions of workers whose next probe may find other devices, sizes and attributes."""


class UsableWorkers:
    """The workers that could run each job if all were idle and healthy. One usable VM makes its whole slice usable."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self._fleet = Fleet(cluster.workers.values(), now, Limits(), ())
        self._position = {worker_id: position for position, worker_id in enumerate(self._fleet.ids)}
        self._idle = [Amounts.idle(worker) for worker in self._fleet.workers]
        self._unknown = self.mask(worker.id for worker in self._fleet.workers if worker.condition in _UNKNOWN)
        self._usable: dict[Signature, int] = {}

    def mask(self, workers: Iterable[WorkerId]) -> int:
        """Return these workers as a bit mask. Workers that are not in the cluster are omitted."""
        return mask_of([self._position[each] for each in workers if each in self._position])

    def usable_by(self, job: Job) -> int:
        """Return the workers that could run a job. An unprobed worker could have any device, size or attribute."""
        signature = job.signature
        if signature not in self._usable:
            self._usable[signature] = self._find_usable(job)
        return self._usable[signature]

    def _find_usable(self, job: Job) -> int:
        fleet, need = self._fleet, Amounts.needed(job.resources)
        with_device = fleet.workers_with_device(job.resources.device)
        as_recorded = with_device & mask_of([at for at, idle in enumerate(self._idle) if idle.covers(need)])
        may_change = self._unknown & (with_device | ~fleet.workers_with_attribute(DEVICE_TYPE_ATTRIBUTE_KEY))
        for constraint in job.constraints:
            if constraint.required:
                satisfying = fleet.workers_satisfying(constraint)
                as_recorded &= satisfying
                may_change &= satisfying | ~fleet.workers_with_attribute(constraint.key)
        found = (as_recorded | may_change) & fleet.workers_tolerated_by(job.tolerations)
        found = self._keep_large_groups(job, found)
        for group in fleet.groups(TPU_NAME_ATTRIBUTE_KEY).groups:
            if group.mask & found:
                found |= group.mask
        return found

    def _keep_large_groups(self, job: Job, found: int) -> int:
        """Return the workers in large enough groups for a gang. Unprobed workers may be part of any group."""
        shape = shape_of(job)
        if shape is None:
            return found
        if found & self._unknown & ~self._fleet.workers_with_attribute(shape.group_by):
            return found
        members = [found & group.mask for group in self._fleet.groups(shape.group_by).groups]
        return sum(each for each in members if each.bit_count() >= shape.size)


class IndependentAssignments(Struct, frozen=True, kw_only=True):
    """The assignments of a plan that can be committed now. `dependent` are the jobs that must wait for answers."""

    assignments: tuple[Assignment, ...]
    dependent: frozenset[JobId]


def independent_assignments(
    plan: Plan, cluster: Cluster, unanswered: Collection[WorkerId], now: float, *, only_unaffected: bool
) -> IndependentAssignments:
    """Return the assignments of a plan that do not depend on the `unanswered` workers.

    The plan must not use `unanswered` workers. An assignment depends on them if the plan might differ once they answer.
    Jobs are examined in the order of the queue. First, only the unanswered workers are contested. A job that could run
    on a contested worker is dependent, and then all workers that it could run on are contested, too. Exception: without
    `only_unaffected`, a job is not dependent if all its tasks are placed on workers that are not contested.

    The result keeps the plan's order, has all tasks of a gang or none, and uses no contested worker.
    """
    usable_workers = UsableWorkers(cluster, now)
    contested = usable_workers.mask(unanswered)
    placed: dict[JobId, list[Assignment]] = {}
    for each in plan.assignments:
        placed.setdefault(each.task.job, []).append(each)
    waiting_jobs = set(map(job_of, plan.result.waiting))
    committable: list[Assignment] = []
    dependent: list[JobId] = []
    # Only the order of the jobs is needed, so the queue has no tasks.
    no_tasks: TasksByJob = {job: [] for job in (*placed, *waiting_jobs)}
    entries = build_queue(no_tasks, cluster.jobs.get, now).entries
    for _, _, job_id, job, *_ in entries:
        assigned, usable = placed.get(job_id, []), usable_workers.usable_by(job)
        is_affected = bool(usable & contested)
        if only_unaffected:
            independent = [] if is_affected else assigned
        else:
            independent = [each for each in assigned if not usable_workers.mask([each.worker]) & contested]
            independent = [] if job.is_gang and len(independent) < len(assigned) else independent
        if is_affected and (only_unaffected or job_id in waiting_jobs or len(independent) < len(assigned)):
            contested |= usable
            dependent.append(job_id)
        committable += independent
    return IndependentAssignments(assignments=tuple(committable), dependent=frozenset(dependent))


def unaffected_jobs(cluster: Cluster, unanswered: Collection[WorkerId], now: float) -> list[JobId]:
    """Return the jobs with pending tasks that could not run on any of the `unanswered` workers."""
    usable_workers = UsableWorkers(cluster, now)
    contested = usable_workers.mask(unanswered)
    pending = dict.fromkeys(task.id.job for task in cluster.pending_tasks())
    return [job for job in pending if not usable_workers.usable_by(cluster.jobs[job]) & contested]
