"""Plan a cycle from the state of a cluster: hold back tasks and gangs that must not start, and schedule the others."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from operator import attrgetter

from msgspec import Struct, field

from iris_cli.core import AttemptState, Cluster, Device, JobId, Limits, Task, TaskId, WorkerId, collector
from iris_cli.core.model.job import NOTHING_MISSING, Job, JobState, Missing
from iris_cli.core.scheduling.cycle import SchedulingResult, WaitingKey, find_assignments
from iris_cli.core.scheduling.explain.expected import ExpectedStart, TimeLimits
from iris_cli.core.scheduling.explain.explanation import Explanation
from iris_cli.core.scheduling.order import TasksByJob, by_job, is_overdue, split_overdue
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.scheduling.slice_affinity import SliceAffinity

_ATTEMPTS = attrgetter("attempts")


class Plan(Struct, frozen=True, kw_only=True):
    """The decisions of one cycle. `held` are the tasks and gangs that did not compete in the cycle.

    The tasks in `dependency_failed` can never run, because a job in their `after` did not succeed. `too_late` has the
    reason of each task or gang whose scheduling timeout expired while it was pending. `waiting_for_own_slices` are the
    held tasks and gangs that would fit on slices created for other jobs.
    """

    result: SchedulingResult
    timed_out_tasks: tuple[TaskId, ...]
    dependency_failed: tuple[TaskId, ...]
    held: dict[WaitingKey, tuple[Reason, ...]]
    too_late: Mapping[WaitingKey, Reason] = field(default_factory=dict)
    waiting_for_own_slices: Collection[WaitingKey] = ()

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return self.result.assignments

    @property
    def waiting(self) -> Mapping[WaitingKey, tuple[Reason, ...]]:
        """The reasons of all pending tasks (by their ids) and gangs (by their jobs' ids)."""
        return ChainMap(self.held, self.result.waiting)  # type: ignore[arg-type]  # only ever read

    def reasons_of(self, key: WaitingKey) -> tuple[Reason, ...]:
        """Return the reasons why one task or gang is pending; empty if it is not."""
        return self.held.get(key) or self.result.waiting.get(key, ())

    def causes(self, keys: Sequence[WaitingKey]) -> Sequence[object]:
        """Return an object for each key: the same object for equal causes, None for a key that is not pending."""
        causes = self.result.waiting.causes(keys)
        if not self.held:
            return causes
        return [self.held.get(key) or cause for key, cause in zip(keys, causes, strict=True)]

    def only(self, assignments: tuple[Assignment, ...]) -> Plan:
        """Return the plan with only these assignments. It ends no task."""
        return Plan(
            result=self.result.only(assignments),
            timed_out_tasks=(),
            dependency_failed=(),
            held=self.held,
            too_late=self.too_late,
            waiting_for_own_slices=self.waiting_for_own_slices,
        )

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        """Return why the gang or tasks of a job are pending, without duplicates; empty if none is pending."""
        waiting = self.waiting
        if job in waiting:
            return waiting[job]
        tasks = sorted(key for key in waiting if isinstance(key, TaskId) and key.job == job)
        return tuple(dict.fromkeys(reason for task in tasks for reason in waiting[task]))

    def explain(self, key: WaitingKey) -> Explanation:
        """Return the explanation of a pending task or gang. Raises KeyError for other keys."""
        held = self.held.get(key)
        return Explanation(reasons=held) if held is not None else self.result.waiting.explain(key)

    def expected_start(self, key: WaitingKey, limits: TimeLimits) -> ExpectedStart | None:
        """Return the expected start of a task or gang if only tasks with time limits block it, otherwise None."""
        if key in self.held or key not in self.result.waiting:
            return None
        return self.result.waiting.expected_start(key, limits)


@collector.gc_paused
def plan(
    cluster: Cluster,
    now: float,
    *,
    limits: Limits | None = None,
    gang_reserve_after: float | None = None,
    missing: Missing = NOTHING_MISSING,
    offered: Collection[Device] = (),
) -> Plan:
    """Plan one cycle at `now`, in seconds since the epoch. `gang_reserve_after` overrides the limits.

    It holds back jobs that the operator holds, jobs with `missing` secrets or files, jobs with open dependencies, and
    tasks and gangs with live attempts. Scheduling timeouts still apply, except while a job waits for the operator, for
    a dependency, or because of its `max_running`. `offered` are the devices that scale groups could add.
    """
    limits = limits or Limits()
    gate = _Gate(cluster, now, missing)
    for job_id, tasks in by_job(cluster.pending_tasks()).items():
        job = cluster.jobs[job_id]
        if job.end is None and not job.cancelled:
            gate.admit(job, tasks)
    affinity, stops = SliceAffinity(cluster), _unconfirmed_stops(cluster)

    reserve_after = limits.gang_reserve_after if gang_reserve_after is None else gang_reserve_after

    def cycle(
        ready: TasksByJob,
        get_job: Callable[[JobId], Job | None] = affinity.job,
        reserve_after: float = reserve_after,
    ) -> SchedulingResult:
        return find_assignments(
            ready,
            cluster.workers.values(),
            get_job,
            now,
            gang_reserve_after=reserve_after,
            backoff_max=limits.backoff_max,
            unconfirmed_stops=stops,
            offered=offered,
        )

    result, waiting = cycle(gate.ready), dict[WaitingKey, Reason]()
    while more := affinity.must_wait(result, waiting):
        waiting |= more
        gate.hold_back(more)
        result = cycle(gate.ready)
    late = by_job(map(cluster.tasks.__getitem__, result.timed_out_tasks))
    patient = cycle(late, partial(_patient, affinity), reserve_after=0.0) if late else None
    return Plan(
        result=result,
        timed_out_tasks=(*result.timed_out_tasks, *gate.timed_out),
        dependency_failed=tuple(gate.failed),
        held=gate.held,
        too_late={key: reasons[0] for key, reasons in patient.waiting.items()} if patient is not None else {},
        waiting_for_own_slices=tuple(waiting),
    )


def _patient(affinity: SliceAffinity, job_id: JobId) -> Job | None:
    """Return the job without its scheduling timeout."""
    job = affinity.job(job_id)
    if job is not None:
        job = copy(job)
        job.scheduling_timeout = 0.0
    return job


class _Gate:
    """Decides which pending tasks of each job compete in the cycle."""

    def __init__(self, cluster: Cluster, now: float, missing: Missing) -> None:
        self._cluster = cluster
        self._now = now
        self._missing = missing
        self._unable = missing.jobs
        self._states: dict[JobId, JobState | None] = {}
        self.ready: TasksByJob = {}
        self.held: dict[WaitingKey, tuple[Reason, ...]] = {}
        self.timed_out: list[TaskId] = []
        self.failed: list[TaskId] = []

    def admit(self, job: Job, tasks: list[Task]) -> None:
        """Divide the pending tasks of one job into tasks that are ready, held, timed out, or can never run."""
        tasks = self._within_limit(job, tasks) if job.max_running else tasks
        held = job.held_at is not None
        if not (held or job.after or job.rounds or job.id in self._unable or any(map(_ATTEMPTS, tasks))):
            self.ready[job.id] = tasks
            return
        states = {dependency: self._state(dependency) for dependency in job.after}
        if any(state is None or _has_failed(state) for state in states.values()):
            self.failed += [task.id for task in tasks]
            return
        reasons = self._of_job(job, states)
        if reasons and is_overdue(job, self._cluster.jobs.get, self._now):
            late, tasks = split_overdue(job, tasks, self._now)
            self.timed_out += [task.id for task in late]
        if job.is_gang:
            self._hold_or_admit(job.id, job, tasks, (*reasons, *self._of_gang(job)))
        else:
            for task in tasks:
                self._hold_or_admit(
                    task.id, job, [task], (*reasons, *_still_stopping(task)) if task.attempts else reasons
                )

    def hold_back(self, waits: Mapping[WaitingKey, Reason]) -> None:
        """Hold back gangs and single tasks that were ready."""
        self.held |= {key: (reason,) for key, reason in waits.items()}
        for job in dict.fromkeys(key.job if isinstance(key, TaskId) else key for key in waits):
            left = [task for task in self.ready.pop(job) if job not in waits and task.id not in waits]
            if left:
                self.ready[job] = left

    def _within_limit(self, job: Job, tasks: list[Task]) -> list[Task]:
        """Return the first tasks that `max_running` allows, and hold the others.

        A pending task whose previous attempt still lives counts as running.
        """
        live = sum(map(_is_live, self._cluster.tasks_of(job.id)))
        room = max(0, job.max_running - live)
        held = [task.id for task in tasks if not _is_live(task)][room:]
        text = f"at most {job.max_running} of the job's tasks run at a time"
        reason = Reason(kind=ReasonKind.BEHIND, text=text, need=1, have=0)
        self.held |= dict.fromkeys(held, (reason,))
        behind = set(held)
        return [task for task in tasks if task.id not in behind]

    def _hold_or_admit(
        self, key: WaitingKey, job: Job, tasks: list[Task], reasons: tuple[Reason, ...]
    ) -> None:
        if not reasons:
            self.ready.setdefault(job.id, []).extend(tasks)
        elif tasks:
            self.held[key] = reasons

    def _of_job(self, job: Job, states: Mapping[JobId, JobState | None]) -> tuple[Reason, ...]:
        reasons = []
        if job.id in self._missing.files:
            reasons.append(Reason(kind=ReasonKind.INVALID, text=self._missing.files[job.id]))
        missing = self._missing.secrets.get(job.id)
        if missing:
            text = "; ".join(missing)
            reasons.append(
                Reason(kind=ReasonKind.SECRET, text=text, need=len(job.secrets), refused=len(missing))
            )
        if job.held_at is not None:
            reasons.append(Reason(kind=ReasonKind.AFTER, text=f"held (iris release {job.id})"))
        unfinished = [dependency for dependency, state in states.items() if state is not JobState.SUCCEEDED]
        if unfinished:
            text = f"waiting for {', '.join(unfinished)} to succeed"
            have = len(states) - len(unfinished)
            reasons.append(Reason(kind=ReasonKind.AFTER, text=text, need=len(states), have=have))
        return tuple(reasons)

    def _of_gang(self, job: Job) -> list[Reason]:
        """Return why a gang can't start a new round: its last round has live attempts or no verdict yet."""
        if job.rounds == 0:
            return []
        reasons = [reason for task in self._cluster.tasks_of(job.id) for reason in _still_stopping(task)]
        if not reasons and job.rounds > job.settled_rounds:
            reasons.append(Reason(kind=ReasonKind.STOPPING, text="its last round has not ended yet"))
        return reasons

    def _state(self, job: JobId) -> JobState | None:
        if job not in self._states:
            known = job in self._cluster.jobs
            self._states[job] = self._cluster.job_state(job) if known else None
        return self._states[job]


def _has_failed(state: JobState) -> bool:
    return state.terminal and state is not JobState.SUCCEEDED


def _is_live(task: Task) -> bool:
    return any(attempt.live for attempt in task.attempts)


def _still_stopping(task: Task) -> list[Reason]:
    return [
        Reason(
            kind=ReasonKind.STOPPING,
            text=f"{task.id}/attempt-{attempt.number} has not ended yet on {attempt.worker}",
        )
        for attempt in task.attempts
        if attempt.live
    ]


def _unconfirmed_stops(cluster: Cluster) -> dict[WorkerId, list[JobId | None]]:
    """Return the workers with stopping attempts or ghosts, and for each of both its job (None for a ghost)."""
    found: dict[WorkerId, list[JobId | None]] = {}
    for worker in cluster.workers.values():
        stopping: list[JobId | None] = [
            attempt.task.job
            for attempt in worker.claims
            if cluster.attempt(attempt).state is AttemptState.STOPPING
        ]
        if worker.id in cluster.ghosts:
            stopping.append(None)
        if stopping:
            found[worker.id] = stopping
    return found
