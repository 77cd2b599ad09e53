"""From the state of a cluster to a plan: what must be held back is, the rest is scheduled."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.job import Job, JobState
from iris_cli.core.scheduling.cycle import SchedulingResult, WaitingKey, find_assignments
from iris_cli.core.scheduling.explain import Explanation
from iris_cli.core.scheduling.order import Entry, split_overdue
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.task import AttemptState, Task, TaskState


class DependencyFailed(NamedTuple):
    """A job can never run: `dependency` ended in `state`, or isn't known at all (None)."""

    job: JobId
    dependency: JobId
    state: JobState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one cycle wants to happen. `held` are the entries that were kept out of the cycle."""

    result: SchedulingResult
    timed_out_tasks: tuple[TaskId, ...]
    dependency_failed: tuple[DependencyFailed, ...]
    held: Mapping[WaitingKey, tuple[Reason, ...]]

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """Who goes where, in order of decision."""
        return self.result.assignments

    @property
    def waiting(self) -> Mapping[WaitingKey, tuple[Reason, ...]]:
        """Everything that waits: single tasks by their ids, gangs by those of their jobs."""
        return ChainMap(dict(self.held), self.result.waiting)  # type: ignore[arg-type]  # only ever read

    def reasons(self, job: Job) -> tuple[Reason, ...]:
        """Why tasks of a job wait, each reason once; nothing where none does."""
        return tuple(dict.fromkeys(reason for reasons in self._by_reasons(job) for reason in reasons))

    def explanations(self, job: Job) -> tuple[Explanation, ...]:
        """Everything known about what tasks of a job wait for, once for those that wait for the same."""
        return tuple(self.explain(key) for key in self._by_reasons(job).values())

    def explain(self, key: WaitingKey) -> Explanation:
        """Everything known about what one task or gang waits for. Raises KeyError for what doesn't wait."""
        held = self.held.get(key)
        return Explanation(reasons=held) if held is not None else self.result.waiting.explain(key)

    def _by_reasons(self, job: Job) -> dict[tuple[Reason, ...], WaitingKey]:
        """For each set of reasons the first task, or the gang, that has them."""
        waiting = self.waiting
        keys: list[WaitingKey] = [job.id] if job.is_gang else [*job.task_ids]
        found: dict[tuple[Reason, ...], WaitingKey] = {}
        for key in keys:
            if key in waiting:
                found.setdefault(waiting[key], key)
        return found


def plan(
    cluster: Cluster,
    now: float,
    *,
    gang_reserve_after: float = 600.0,
    backoff_max: float = 600.0,
    held_back: Mapping[JobId, Reason] | None = None,
) -> Plan:
    """Plan one cycle at `now`, in seconds since the epoch.

    Held back are jobs in `held_back` (a secret that can't be resolved), jobs whose dependencies haven't
    ended, and tasks and gangs of which an older attempt hasn't. Deadlines hold for those too.
    """
    gate = _Gate(cluster, now, held_back or {})
    for job, tasks in _pending(cluster):
        gate.admit(job, tasks)
    result = find_assignments(
        gate.ready,
        cluster.workers.values(),
        cluster.jobs.get,
        now,
        gang_reserve_after=gang_reserve_after,
        backoff_max=backoff_max,
        unconfirmed_stops=_unconfirmed_stops(cluster),
    )
    return Plan(
        result=result,
        timed_out_tasks=(*result.timed_out_tasks, *gate.timed_out),
        dependency_failed=tuple(gate.failed),
        held=gate.held,
    )


class _Gate:
    """Decides job by job what may compete in the cycle."""

    def __init__(self, cluster: Cluster, now: float, held_back: Mapping[JobId, Reason]) -> None:
        self._cluster = cluster
        self._now = now
        self._held_back = held_back
        self._states: dict[JobId, JobState | None] = {}
        self.ready: list[Task] = []
        self.held: dict[WaitingKey, tuple[Reason, ...]] = {}
        self.timed_out: list[TaskId] = []
        self.failed: list[DependencyFailed] = []

    def admit(self, job: Job, tasks: list[Task]) -> None:
        """Sort the pending tasks of one job into what is ready, held, too late or without a future."""
        states = {dependency: self._state(dependency) for dependency in job.after}
        for dependency, state in states.items():
            if state is None or (state.terminal and state is not JobState.SUCCEEDED):
                self.failed.append(DependencyFailed(job.id, dependency, state))
                return
        reasons = self._of_job(job, states)
        if reasons:
            late, tasks = split_overdue(Entry(job, tasks), self._now)
            self.timed_out += [task.id for task in late]
        if job.is_gang:
            self._sort(job.id, tasks, (*reasons, *self._of_gang(job)))
        else:
            for task in tasks:
                self._sort(task.id, [task], (*reasons, *_still_stopping(task)) if task.attempts else reasons)

    def _sort(self, key: WaitingKey, tasks: list[Task], reasons: tuple[Reason, ...]) -> None:
        if not reasons:
            self.ready += tasks
        elif tasks:
            self.held[key] = reasons

    def _of_job(self, job: Job, states: Mapping[JobId, JobState | None]) -> tuple[Reason, ...]:
        unfinished = [dependency for dependency, state in states.items() if state is not JobState.SUCCEEDED]
        reasons = [self._held_back[job.id]] if job.id in self._held_back else []
        if unfinished:
            text = f"waits for {', '.join(unfinished)} to succeed"
            have = len(states) - len(unfinished)
            reasons.append(Reason(kind=ReasonKind.AFTER, text=text, need=len(states), have=have))
        return tuple(reasons)

    def _of_gang(self, job: Job) -> list[Reason]:
        """A new round never meets the last one: its attempts must have ended, its verdict be known."""
        if job.rounds == 0:
            return []
        reasons = [reason for task in self._cluster.tasks_of(job.id) for reason in _still_stopping(task)]
        if not reasons and job.rounds > job.settled_rounds:
            reasons.append(Reason(kind=ReasonKind.STOPPING, text="its last round is not settled yet"))
        return reasons

    def _state(self, job: JobId) -> JobState | None:
        if job not in self._states:
            known = job in self._cluster.jobs
            self._states[job] = self._cluster.job_state(job) if known else None
        return self._states[job]


def _still_stopping(task: Task) -> list[Reason]:
    return [
        Reason(
            kind=ReasonKind.STOPPING,
            text=f"{task.id}/attempt-{attempt.number} has not ended yet on {attempt.worker}",
        )
        for attempt in task.attempts
        if attempt.live
    ]


def _unconfirmed_stops(cluster: Cluster) -> list[WorkerId]:
    return [
        worker.id
        for worker in cluster.workers.values()
        if any(cluster.attempt(attempt).state is AttemptState.STOPPING for attempt in worker.claims)
    ]


def _pending(cluster: Cluster) -> Iterator[tuple[Job, list[Task]]]:
    """The pending tasks of jobs that are not over, job by job."""
    by_job: dict[JobId, list[Task]] = {}
    for task in cluster.tasks.values():
        if task.state is TaskState.PENDING:
            by_job.setdefault(task.job, []).append(task)
    for job_id, tasks in by_job.items():
        job = cluster.jobs[job_id]
        if job.end is None and not job.cancelled:
            yield job, tasks
