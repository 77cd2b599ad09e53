"""Data that explains why a task or a gang is pending, and the jobs that took the room it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from enum import StrEnum
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from iris_cli.core import Constraint, Device, Job, Priority, Resources, Task, Worker, WorkerCondition
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.model.job import Signature
from iris_cli.core.scheduling.order import Entry
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.reasons import Reason, ReasonKind


class Taker(Struct, frozen=True, kw_only=True):
    """A job whose tasks were placed earlier in this cycle, and their workers. It may be the pending job itself."""

    job: JobId
    priority: Priority
    workers: tuple[WorkerId, ...]

    def __str__(self) -> str:
        return self.job if self.priority is Priority.NORMAL else f"{self.job} ({self.priority})"


class Turns:
    """The turn of each job (its index in the queue of the cycle), and the workers that it took. Computed on access."""

    def __init__(self, record: CycleRecord) -> None:
        self._record = record

    def takers(self, job: Job, workers: Iterable[WorkerId]) -> list[Taker]:
        """Return the jobs that took room on these workers before a job's turn, in the order of their turns."""
        return list(self._takers(self._turns[job.id], workers))

    def first_before(self, job: JobId, workers: Iterable[WorkerId]) -> Taker | None:
        """Return the first other job that took room on these workers before a job's turn, or None."""
        turns = (self._taken[worker][0] for worker in workers if worker in self._taken)
        first = min(turns, default=len(self._turns))
        return self._taker(first, []) if first < self._turns[job] else None

    def takers_before_all_like(self, job: Job, workers: Iterable[WorkerId]) -> Iterator[Taker]:
        """Yield the jobs that took room on these workers before all pending jobs with the same signature."""
        return self._takers(self._first_waiting[job.signature], workers)

    def _takers(self, turn: int, workers: Iterable[WorkerId]) -> Iterator[Taker]:
        found: dict[int, list[WorkerId]] = {}
        for worker in workers:
            for taker in self._taken.get(worker, ()):
                if taker <= turn:
                    found.setdefault(taker, []).append(worker)
        return (self._taker(taker, found[taker]) for taker in sorted(found))

    def _taker(self, turn: int, workers: list[WorkerId]) -> Taker:
        job, _ = self._record.due[turn]
        return Taker(job=job.id, priority=job.priority, workers=tuple(workers))

    @cached_property
    def _turns(self) -> dict[JobId, int]:
        return {job.id: turn for turn, (job, _) in enumerate(self._record.due)}

    @cached_property
    def _first_waiting(self) -> dict[Signature, int]:
        """The first turn that left tasks unplaced, by signature."""
        placed = Counter(map(attrgetter("task.job"), self._record.placed))
        found: dict[Signature, int] = {}
        for turn, (job, tasks) in enumerate(self._record.due):
            if placed.get(job.id, 0) < len(tasks):
                found.setdefault(job.signature, turn)
        return found

    @cached_property
    def _taken(self) -> dict[WorkerId, tuple[int, ...]]:
        """The turns that took room, by worker."""
        found: dict[WorkerId, dict[int, None]] = {}
        for each in self._record.placed:
            found.setdefault(each.worker, {})[self._turns[each.task.job]] = None
        return {worker: tuple(turns) for worker, turns in found.items()}


class ConstraintCount(Struct, frozen=True, kw_only=True):
    """`workers` have a compatible device; `satisfied` of them satisfy the constraint."""

    constraint: Constraint
    satisfied: int
    workers: int


class DimensionCount(Struct, frozen=True, kw_only=True):
    """`lacking` of the `workers` with a compatible device had less than `need` free when the cycle began.

    `need` is in thousandths of a core, bytes or GPUs; for chips, 1 stands for all chips of a worker.
    """

    kind: ReasonKind
    need: int
    lacking: int
    workers: int


class NearMiss(Struct, frozen=True, kw_only=True):
    """A worker or group that almost fits, and the first kind of reason against it.

    `lacking` are the workers that fail for this reason; `text` is the shortage: `2 cores free, needs 4 cores`.
    """

    name: str
    kind: ReasonKind
    lacking: tuple[WorkerId, ...]
    text: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """The explanation of why a task or a gang is pending.

    `refused`: for each kind of reason, the number of workers for which it is the first reason. For gangs,
    `groups_found` counts the groups with a compatible device, and `largest` is the name and size of the largest group.
    `near_misses` are sorted, the nearest first. `behind`: jobs that took room earlier in this cycle. `hints`: probable
    typing errors in the constraints. `change`: one change after which the task or gang would be placed.
    """

    reasons: tuple[Reason, ...]
    workers: int = 0
    equipped: int = 0
    constraints: tuple[ConstraintCount, ...] = ()
    dimensions: tuple[DimensionCount, ...] = ()
    refused: tuple[tuple[ReasonKind, int], ...] = ()
    group_by: str = ""
    groups_found: int = 0
    largest: tuple[str, int] | None = None
    near_misses: tuple[NearMiss, ...] = ()
    behind: tuple[Taker, ...] = ()
    hints: tuple[str, ...] = ()
    change: Change | None = None


# Simulation of the same cycle with one change, to find a change that helps.


UnconfirmedStops = Mapping[WorkerId, Collection[JobId | None]] | Collection[WorkerId]
"""The workers with unconfirmed stops, and the jobs of the stopping attempts; None for a ghost, which outlasts its
job."""


_LAST = 1 << 62  # the order of a job submitted again: after all jobs of its priority


class ChangeKind(StrEnum):
    """Kind of a change to the pending job or to the cluster."""

    DROP = "drop"
    TOLERATE = "tolerate"
    SPREAD = "spread"
    JOB_ENDS = "job_ends"
    TASK_ENDS = "task_ends"
    UNCORDON = "uncordon"
    COMPLETES = "completes"
    RECOVERS = "recovers"
    RESTS = "rests"
    PRIORITY = "priority"
    LESS_CPU = "less_cpu"
    LESS_MEMORY = "less_memory"
    FEWER_GPUS = "fewer_gpus"


class Change(Struct, frozen=True, kw_only=True):
    """One change that would place a pending task or gang, or one more task of its job.

    `subject` is the object to change: the constraint as typed, the taint, the job or task that would end, the
    worker to repair, the priority. `amount` is the new request: thousandths of a core, bytes or GPUs.
    """

    kind: ChangeKind
    subject: str = ""
    amount: int = 0
    text: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def label(self) -> str:
        """`forecast` if the change happens without the operator, otherwise `suggestion`."""
        comes = self.kind in (ChangeKind.JOB_ENDS, ChangeKind.TASK_ENDS, ChangeKind.RESTS)
        return "forecast" if comes else "suggestion"


class CycleRecord(Struct, frozen=True, kw_only=True, dict=True):
    """Input and placements of a cycle. `kept_out`: tasks and gangs that did not compete. `decide` runs a cycle."""

    queue: Sequence[Entry]
    kept_out: Collection[TaskId | JobId]
    placed: Sequence[Assignment]
    get_job: Callable[[JobId], Job | None]
    workers: Sequence[Worker]
    unconfirmed_stops: UnconfirmedStops
    decide: Callable[..., Iterable[Assignment]]

    @cached_property
    def due(self) -> list[tuple[Job, list[Task]]]:
        """The jobs and tasks that competed in the cycle, in order."""
        queue = [(job, tasks) for _, _, _, job, tasks, _, _ in self.queue]
        out = self.kept_out
        if not out:
            return queue
        rest = ((job, [task for task in tasks if task.id not in out]) for job, tasks in queue)
        return [(job, tasks) for job, tasks in rest if tasks and job.id not in out]

    def with_change(self, job_id: JobId, change: Change) -> list[WorkerId]:
        """Return the workers of those tasks of the job that are placed only with the change."""
        turn = next(at for at, (job, _) in enumerate(self.due) if job.id == job_id)
        queue = self.due[: turn + 1]  # later jobs have no effect
        if change.kind is ChangeKind.JOB_ENDS:  # the pending tasks of the ended job end, too
            queue = [(job, tasks) for job, tasks in queue if job.id != change.subject]
        job = self.get_job(job_id)
        assert job is not None
        changed = _changed_job(job, change)
        after = self.decide(
            [task for _, tasks in queue for task in tasks],
            [_changed_worker(worker, change) for worker in self.workers],
            lambda each: changed if each == job_id else self.get_job(each),
            unconfirmed_stops=self._stops_after(change),
        )
        before = Counter(each.worker for each in self.placed if each.task.job == job_id)
        placed = [each.worker for each in after if each.task.job == job_id]
        if len(placed) <= before.total():
            return []
        return [worker for worker in placed if not _take_one(before, worker)]

    def more_placed(self, job: Job, workers: Sequence[Worker], *, alone: bool) -> bool:
        """Return whether more tasks of a job would be placed on these workers. `alone`: assume that no job is ahead."""
        turn = next(at for at, (each, _) in enumerate(self.due) if each.id == job.id)
        queue = self.due[turn : turn + 1] if alone else self.due[: turn + 1]
        after = self.decide(
            [task for _, tasks in queue for task in tasks],
            workers,
            self.get_job,
            unconfirmed_stops=self.unconfirmed_stops,
        )
        before = sum(each.task.job == job.id for each in self.placed)
        return sum(each.task.job == job.id for each in after) > before

    def _stops_after(self, change: Change) -> list[WorkerId]:
        """Return the workers with unconfirmed stops after a change. The end of a job confirms its stops."""
        stops = self.unconfirmed_stops
        if change.kind is not ChangeKind.JOB_ENDS or not isinstance(stops, Mapping):
            return list(stops)
        return [worker for worker, jobs in stops.items() if any(job != change.subject for job in jobs)]


def _take_one(counts: Counter[WorkerId], worker: WorkerId) -> bool:
    counts[worker] -= 1
    return counts[worker] >= 0


def _changed_job(job: Job, change: Change) -> Job:
    changed, resources, amount = copy(job), job.resources, change.amount
    match change.kind:
        case ChangeKind.DROP:
            rest = tuple(each for each in job.constraints if format_constraint(each) != change.subject)
            changed.constraints = rest
        case ChangeKind.TOLERATE:
            changed.tolerations = (*job.tolerations, change.subject)
        case ChangeKind.SPREAD:
            changed.spread = True
        case ChangeKind.PRIORITY:
            changed.priority, changed.order = Priority(change.subject), _LAST
        case ChangeKind.LESS_CPU:
            changed.resources = Resources(amount / 1000, resources.memory, resources.device)
        case ChangeKind.LESS_MEMORY:
            changed.resources = Resources(resources.cpu, amount, resources.device)
        case ChangeKind.FEWER_GPUS:
            assert resources.device is not None
            device = Device(resources.device.kind, resources.device.variant, amount)
            changed.resources = Resources(resources.cpu, resources.memory, device)
        case _:
            return job
    return changed


def _changed_worker(worker: Worker, change: Change) -> Worker:
    if change.kind in (ChangeKind.JOB_ENDS, ChangeKind.TASK_ENDS):
        claims = {
            attempt: claim
            for attempt, claim in worker.claims.items()
            if change.subject not in (attempt.task.job, str(attempt.task))
        }
        if len(claims) == len(worker.claims):
            return worker
        emptier = copy(worker)
        emptier.claims = claims
        return emptier
    if change.subject != worker.id:
        return worker
    changed = copy(worker)
    match change.kind:
        case ChangeKind.UNCORDON | ChangeKind.COMPLETES:
            changed.draining, changed.quarantined, changed.cooldown_until = False, False, 0.0
        case ChangeKind.RECOVERS:
            changed.condition = WorkerCondition.HEALTHY
            changed.unschedulable, changed.cooldown_until = False, 0.0
        case ChangeKind.RESTS:
            changed.cooldown_until = 0.0
        case _:
            return worker
    return changed
