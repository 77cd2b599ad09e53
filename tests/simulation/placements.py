"""Which worker may take which task, and who comes first: worked out once more from the specification."""

from __future__ import annotations

from collections.abc import Callable

from iris_cli.core.attributes import REGION_ATTRIBUTE_KEY
from iris_cli.core.constraints import TAINT_KEY_PREFIX, TPU_NAME_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY
from iris_cli.core.events.events import TaskAssigned, TaskEnded, Transaction
from iris_cli.core.ids import AttemptId, JobId, depth_of, root_of
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, JobState, Signature
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import AttemptState, EndReason, TaskState
from iris_cli.core.model.worker import WorkerCondition
from tests.simulation.verdicts import state_of


class Placements:
    """Judges the assignments, and the ends of tasks that are never assigned, of each transaction."""

    def __init__(self, breach: Callable[[str], None], limits: Limits) -> None:
        self._breach = breach
        self._limits = limits

    def judge(self, transaction: Transaction, before: Cluster, after: Cluster, _who: str) -> None:
        """Report every assignment of a transaction that the specification forbids."""
        assigned = [event for event in transaction.events if isinstance(event, TaskAssigned)]
        for event in assigned:
            words = self._why_not(before, after, event, transaction.at)
            if words:
                self._breach(f"{event.task} is assigned to {event.worker}: {words}")
            self._may_compete(event, before, after, transaction.at)
        for job in dict.fromkeys(event.task.job for event in assigned):
            if after.jobs[job].is_gang:
                self._gang(after.jobs[job], after)
            elif after.jobs[job].max_running:
                self._throttle(after.jobs[job], after)
        if assigned and not after.slices:  # a slice goes to the job that it was created for
            self._order(assigned, before, after)
        for each in transaction.events:
            if isinstance(each, TaskEnded) and each.state is TaskState.UNSCHEDULABLE:
                self._unschedulable(each, before, after, transaction.at)

    def _why_not(self, before: Cluster, after: Cluster, event: TaskAssigned, at: float) -> str:
        """Why a worker may not take this task, "" if it may."""
        worker, job = after.workers[event.worker], after.jobs[event.task.job]
        stopping = [
            str(each)
            for each in worker.claims
            if all(
                _is_stopping(cluster, each) for cluster in (before, after)
            )  # else it has just been ordered
        ]
        taints = [
            key.removeprefix(TAINT_KEY_PREFIX)
            for key in worker.attributes
            if key.startswith(TAINT_KEY_PREFIX)
        ]
        unmet = [each for each in job.constraints if each.required and not each.matches(worker.attributes)]
        objections = {
            f"it is {worker.condition}": worker.condition is not WorkerCondition.HEALTHY,
            "it is drained": worker.draining,
            "it is quarantined": worker.quarantined,
            "it can't be used": worker.unschedulable,
            "it cools down": 0 < worker.cooldown_until - at <= self._limits.backoff_max,
            "what was presumed gone may run there": worker.id in after.ghosts,
            f"{', '.join(stopping)} is being stopped there": bool(stopping),
            f"its taints are {taints}": any(taint not in job.tolerations for taint in taints),
            f"it does not satisfy {unmet}": bool(unmet),
        }
        return "; ".join(words for words, holds in objections.items() if holds)

    def _may_compete(self, event: TaskAssigned, before: Cluster, after: Cluster, at: float) -> None:
        job = after.jobs[event.task.job]
        unfinished = [each for each in job.after if _state(after, each) is not JobState.SUCCEEDED]
        if unfinished:
            self._breach(f"{event.task} is assigned before {', '.join(unfinished)} succeeded")
        if job.end is not None or job.cancelled:
            self._breach(f"{event.task} is assigned, but its job has ended")
        first = not before.tasks[event.task].attempts if event.task in before.tasks else True
        late = 0 < job.scheduling_timeout < at - _competes_since(job, after)
        if first and late and not job.max_running:
            self._breach(f"{event.task} is assigned, but its time to be placed is over")

    def _gang(self, job: Job, after: Cluster) -> None:
        """Ranks follow the numbers of the VMs, block by block; several slices are in one region."""
        if job.resources.device_type != "tpu":
            return
        workers = [after.workers[task.attempts[-1].worker] for task in after.tasks_of(job.id)]
        size = job.replicas // max(1, job.slices)
        for rank, worker in enumerate(workers):
            number = worker.attributes[TPU_WORKER_ID_ATTRIBUTE_KEY].value
            first = workers[rank - rank % size].attributes[TPU_NAME_ATTRIBUTE_KEY]
            if number != rank % size or worker.attributes[TPU_NAME_ATTRIBUTE_KEY] != first:
                self._breach(f"{job.id}: rank {rank} is on {worker.id}, VM {number} of its slice")
        regions = {worker.attributes.get(REGION_ATTRIBUTE_KEY) for worker in workers}
        if len(regions) > 1 and not job.spread:
            self._breach(f"{job.id} is placed in {len(regions)} regions")

    def _throttle(self, job: Job, after: Cluster) -> None:
        live = len(after.live_attempts_of(job.id))
        if live > job.max_running:
            self._breach(f"{job.id}: {live} of its tasks run, {job.max_running} at most")

    def _order(self, assigned: list[TaskAssigned], before: Cluster, after: Cluster) -> None:
        """Of jobs that ask for the same, one that comes first is not passed over."""
        last: dict[Signature, Job] = {}
        for event in assigned:
            job = after.jobs[event.task.job]
            if _turn(after, job) >= _turn(after, last.get(job.signature, job)):
                last[job.signature] = job
        for job in before.jobs.values():
            served = last.get(job.signature)
            if served is None or _turn(after, job) >= _turn(after, served) or not _is_ready(before, job):
                continue
            if any(after.tasks[task].state is TaskState.PENDING for task in job.task_ids):
                self._breach(f"{served.id} is placed, but {job.id} comes before it")

    def _unschedulable(self, event: TaskEnded, before: Cluster, after: Cluster, at: float) -> None:
        job, task = after.jobs[event.task.job], before.tasks.get(event.task)
        if event.end.reason is EndReason.SCHEDULING_TIMEOUT:
            placed = bool(task and task.attempts) or (job.is_gang and job.rounds > 0)
            if placed or not 0 < job.scheduling_timeout < at - _competes_since(job, after):
                self._breach(f"{event.task} ended as {event.end.reason}, but had time left or was placed")
        elif not any(_state(after, each).terminal for each in job.after if each in after.jobs):
            self._breach(f"{event.task} ended as {event.end.reason}, but nothing that it waits for has")


def _is_stopping(cluster: Cluster, attempt: AttemptId) -> bool:
    task = cluster.tasks.get(attempt.task)
    there = task is not None and attempt.number < len(task.attempts)
    return there and cluster.attempt(attempt).state is AttemptState.STOPPING


def _state(cluster: Cluster, job: JobId) -> JobState:
    return state_of(cluster.jobs[job], [task.state for task in cluster.tasks_of(job)])


def _competes_since(job: Job, cluster: Cluster) -> float:
    ends = [cluster.jobs[each].end for each in job.after if each in cluster.jobs]
    return max(job.submitted_at, *(end.at if end is not None else float("inf") for end in ends), 0.0)


def _turn(cluster: Cluster, job: Job) -> tuple[int, int, int, int]:
    """The place of a job in the queue: priority, then depth, then the age of its root, then its own."""
    return job.priority.rank, -depth_of(job.id), cluster.jobs[root_of(job.id)].order, job.order


def _is_ready(cluster: Cluster, job: Job) -> bool:
    """Whether nothing but room can keep a job from being placed."""
    held = job.after or job.secrets or job.max_running or job.scheduling_timeout or job.rounds
    tasks = cluster.tasks_of(job.id)
    return job.end is None and not held and all(not task.attempts for task in tasks)
