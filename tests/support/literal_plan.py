"""Which tasks can be placed, implemented literally: dependencies, missing secrets, attempts that are still stopping.

It shares only the records of the cluster with the planner. The literal scheduler does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from iris_cli.core.ids import JobId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import AttemptState, Task, TaskState
from iris_cli.core.model.worker import WorkerCondition
from tests.support.literal_reasons import in_order, reasons_of
from tests.support.literal_scheduler import LiteralScheduler

_OVER = frozenset(TaskState) - {TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING}


@dataclass
class LiteralPlan:
    """`decide` sets the other fields."""

    cluster: Cluster
    now: float
    reserve_after: float = 600.0
    backoff_max: float = 600.0
    without_secrets: Collection[JobId] = ()
    cycle: LiteralScheduler = field(init=False)
    timed_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    waiting: dict[str, list[str]] = field(default_factory=dict)

    def decide(self) -> None:
        """Classify the pending tasks, and place those that are ready."""
        self.cycle = LiteralScheduler(
            list(self.cluster.workers.values()),
            self.now,
            self.reserve_after,
            self.backoff_max,
            self._in_doubt(),
            self.cluster.jobs,
        )
        ready: list[Task] = []
        for job in self.cluster.jobs.values():
            if not job.cancelled and job.end is None:
                ready += self._ready(job)
        self.cycle.decide(ready, self.cluster.jobs)
        self.timed_out += self.cycle.timed_out
        self.waiting.update(reasons_of(self.cycle))

    def _in_doubt(self) -> set[str]:
        """Return workers with an unconfirmed stop or a ghost."""
        attempts = [attempt for task in self.cluster.tasks.values() for attempt in task.attempts]
        stopping = {each.worker for each in attempts if each.state is AttemptState.STOPPING}
        return {*stopping, *self.cluster.ghosts}

    def _ready(self, job: Job) -> Iterator[Task]:
        pending = [task for task in self._tasks(job) if task.state is TaskState.PENDING]
        fates = [self._fate(name) for name in job.after]
        if "in vain" in fates:
            self.failed += (str(task.id) for task in pending)
            return
        of_job = ["secret"] * (job.id in self.without_secrets) + ["after"] * ("open" in fates)
        for task in pending:
            reasons = in_order([*of_job, *self._of_round(job, task)])
            if reasons and self.cycle.is_late(job, pending if job.is_gang else [task]):
                self.timed_out.append(str(task.id))
            elif reasons:
                self.waiting[job.id if job.is_gang else str(task.id)] = reasons
                if (
                    job.is_gang
                    and reasons == ["stopping"]
                    and len(pending) == job.replicas
                    and self._soon(job)
                ):
                    self.cycle.stopping.add(job.id)
                    yield task
            else:
                yield task

    def _of_round(self, job: Job, task: Task) -> list[str]:
        """Return True if an earlier attempt, or an attempt of the gang's previous round, is still stopping."""
        together = self._tasks(job) if job.is_gang else [task]
        stops = any(attempt.live for each in together for attempt in each.attempts)
        unsettled = job.is_gang and job.rounds > job.settled_rounds
        return ["stopping"] * (stops or unsettled)

    def _soon(self, job: Job) -> bool:
        """Return True if the live attempts can be stopped now."""
        live = [each for task in self._tasks(job) for each in task.attempts if each.live]
        hosts = [self.cluster.workers[each.worker] for each in live]
        return all(each.condition is WorkerCondition.HEALTHY for each in hosts) and not any(
            each.unkillable for each in live
        )

    def _fate(self, name: JobId) -> str:
        """Return the state of a job on which another job depends."""
        job = self.cluster.jobs.get(name)
        if job is None or job.cancelled:
            return "in vain"
        states = [task.state for task in self._tasks(job)]
        if TaskState.UNSCHEDULABLE in states or (job.is_gang and TaskState.WORKER_FAILED in states):
            return "in vain"
        if states.count(TaskState.FAILED) > job.max_task_failures:
            return "in vain"
        if any(state not in _OVER for state in states):
            return "open"
        succeeded = all(state in (TaskState.SUCCEEDED, TaskState.FAILED) for state in states)
        return "succeeded" if succeeded else "in vain"

    def _tasks(self, job: Job) -> list[Task]:
        return [self.cluster.tasks[each] for each in job.task_ids]
