"""Data that explains why a task or a gang is pending, and the record of the cycle from which the data is computed."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from enum import StrEnum
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from iris_cli.core import Constraint, Device, Job, Priority, Resources, Task, Worker, WorkerCondition
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.ids import AttemptId, JobId, WorkerId
from iris_cli.core.model.job import Signature
from iris_cli.core.scheduling.order import Entry
from iris_cli.core.scheduling.placement import Assignment
from iris_cli.core.scheduling.reasons import Reason, ReasonKind, WaitingKey


class Taker(Struct, frozen=True, kw_only=True):
    """A job that took room on `workers` earlier in this cycle. It may be the job of the pending task itself."""

    job: JobId
    priority: Priority
    workers: tuple[WorkerId, ...]

    def __str__(self) -> str:
        return self.job if self.priority is Priority.NORMAL else f"{self.job} ({self.priority})"


class ConstraintCount(Struct, frozen=True, kw_only=True):
    """Of the `workers` with a compatible device, `satisfied` satisfy the constraint."""

    constraint: Constraint
    satisfied: int
    workers: int


class DimensionCount(Struct, frozen=True, kw_only=True):
    """Of the `workers` with a compatible device, `lacking` had less than `need` free when the cycle began.

    `need` is in thousandths of a core, bytes or GPUs; for chips, 1 stands for all chips of a worker.
    """

    kind: ReasonKind
    need: int
    lacking: int
    workers: int


class NearMiss(Struct, frozen=True, kw_only=True):
    """A worker or group that almost fits, and the first kind of reason that rejects it.

    `lacking` are the rejected workers; `text` says what they lack: `2 cores free, needs 4 cores`.
    """

    name: str
    kind: ReasonKind
    lacking: tuple[WorkerId, ...]
    text: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """The explanation of why a task or a gang is pending.

    `equipped` of the `workers` have a compatible device. `refused`: for each kind of reason, the number of workers for
    which it is the first reason. For gangs, `groups_found` counts the groups with a compatible device, and `largest` is
    the name and size of the largest group. `near_misses` are sorted, the nearest first; `more_near_misses` counts those
    omitted. `behind`: jobs that took room earlier in this cycle. `hints`: probable typing errors in the
    constraints. `change`: one change that lets it run.
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
    more_near_misses: int = 0
    behind: tuple[Taker, ...] = ()
    hints: tuple[str, ...] = ()
    change: "Change | None" = None


class ExpectedStart(Struct, frozen=True, kw_only=True):
    """The estimated start: the time when the tasks of `jobs` end, if they run until their time limits."""

    not_before_at: float
    jobs: tuple[JobId, ...]


UnconfirmedStops = Mapping[WorkerId, Collection[JobId | None]] | Collection[WorkerId]
"""The workers with attempts whose stop is not confirmed, and the jobs of these attempts. The job of a ghost is None,
because the end of its job does not confirm that it was stopped."""


_ORDER_OF_RESUBMITTED = 1 << 62  # after all jobs of its priority


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


_RESUBMISSIONS = (
    ChangeKind.DROP,
    ChangeKind.TOLERATE,
    ChangeKind.SPREAD,
    ChangeKind.LESS_CPU,
    ChangeKind.LESS_MEMORY,
    ChangeKind.FEWER_GPUS,
)
_REPAIRS = (ChangeKind.UNCORDON, ChangeKind.COMPLETES, ChangeKind.RECOVERS, ChangeKind.RESTS)


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
        is_forecast = self.kind in (ChangeKind.JOB_ENDS, ChangeKind.TASK_ENDS, ChangeKind.RESTS)
        return "forecast" if is_forecast else "suggestion"


class CycleRecord(Struct, frozen=True, kw_only=True, dict=True):
    """Input and placements of a cycle, to find the jobs ahead of a pending job, and to repeat the cycle with a change.

    `excluded`: tasks and gangs that did not compete, because their timeout has expired or they are malformed. `decide`
    runs a cycle. The turn of a job is its index in `competitors`.
    """

    queue: Sequence[Entry]
    excluded: Collection[WaitingKey]
    placed: Sequence[Assignment]
    get_job: Callable[[JobId], Job | None]
    workers: Sequence[Worker]
    unconfirmed_stops: UnconfirmedStops
    stopping_gangs: Collection[JobId]
    now: float
    decide: Callable[..., Iterable[Assignment]]

    @cached_property
    def competitors(self) -> list[tuple[Job, list[Task]]]:
        """The jobs that competed in the cycle and their tasks, in order."""
        queue = ((job, tasks) for _, _, _, job, tasks, _, _ in self.queue if job.id not in self.excluded)
        rest = ((job, [task for task in tasks if task.id not in self.excluded]) for job, tasks in queue)
        return [(job, tasks) for job, tasks in rest if tasks]

    # Jobs ahead

    def takers(self, job: Job, workers: Iterable[WorkerId]) -> list[Taker]:
        """Return the jobs that took room on these workers before a job's turn or in it, in order."""
        return self._takers(self._turns[job.id], workers)

    def takers_before_signature(self, job: Job, workers: Collection[WorkerId]) -> list[Taker]:
        """Return the jobs that took room on these workers up to the first turn of a pending job with this signature.

        If there are none, later jobs took the room, because a gang of several slices did not fit on these alone.
        """
        found = self._takers(self._first_pending_turns[job.signature], workers)
        return found or self._takers(len(self.competitors), workers)

    def first_taker(self, job: JobId, workers: Iterable[WorkerId]) -> Taker | None:
        """Return the first job that took room on these workers, or None if no job did before the turn of `job`."""
        first = min((self._taken[worker][0] for worker in workers if worker in self._taken), default=None)
        return self._taker(first, []) if first is not None and first < self._turns[job] else None

    def _takers(self, turn: int, workers: Iterable[WorkerId]) -> list[Taker]:
        found: dict[int, list[WorkerId]] = {}
        for worker in workers:
            for taker in self._taken.get(worker, ()):
                if taker <= turn:
                    found.setdefault(taker, []).append(worker)
        return [self._taker(taker, found[taker]) for taker in sorted(found)]

    def _taker(self, turn: int, workers: list[WorkerId]) -> Taker:
        job, _ = self.competitors[turn]
        return Taker(job=job.id, priority=job.priority, workers=tuple(workers))

    @cached_property
    def _turns(self) -> dict[JobId, int]:
        return {job.id: turn for turn, (job, _) in enumerate(self.competitors)}

    @cached_property
    def _placed_by_job(self) -> dict[JobId, int]:
        return Counter(map(attrgetter("task.job"), self.placed))

    @cached_property
    def _first_pending_turns(self) -> dict[Signature, int]:
        """The first turn that left tasks unplaced, by signature."""
        found: dict[Signature, int] = {}
        for turn, (job, tasks) in enumerate(self.competitors):
            if self._placed_by_job.get(job.id, 0) < len(tasks) and job.id not in self.stopping_gangs:
                found.setdefault(job.signature, turn)
        return found

    @cached_property
    def _taken(self) -> dict[WorkerId, tuple[int, ...]]:
        """The turns that took room, by worker."""
        found: dict[WorkerId, dict[int, None]] = {}
        for each in self.placed:
            found.setdefault(each.worker, {})[self._turns[each.task.job]] = None
        return {worker: tuple(turns) for worker, turns in found.items()}

    # Repetitions of the cycle

    def workers_with_change(self, job_id: JobId, change: Change, released: Iterable[Task]) -> list[WorkerId]:
        """Return the workers on which tasks of the job are placed only with the change.

        `released`: the tasks that compete only after the change.
        """
        competitors = self.competitors
        if change.kind not in _RESUBMISSIONS:
            competitors = competitors[: self._turns[job_id] + 1]  # later jobs have no effect
        if change.kind is ChangeKind.JOB_ENDS:  # its pending tasks and its child jobs end, too
            competitors = [
                (job, tasks) for job, tasks in competitors if not ends_with(job.id, change.subject)
            ]
        job = self.get_job(job_id)
        assert job is not None
        changed = _changed_job(job, change)
        placed_after = self.decide(
            [*(task for _, tasks in competitors for task in tasks), *released],
            [_changed_worker(worker, change) for worker in self.workers],
            lambda each: changed if each == job_id else self.get_job(each),
            unconfirmed_stops=self._stops_after(change),
            stopping_gangs=self.stopping_gangs,
            now=self._time_of(change),
        )
        before = Counter(each.worker for each in self.placed if each.task.job == job_id)
        placed = Counter(each.worker for each in placed_after if each.task.job == job_id)
        return list((placed - before).elements()) if placed.total() > before.total() else []

    def places_more(self, job: Job, workers: Sequence[Worker], *, alone: bool) -> bool:
        """Return whether more tasks of a job would be placed on these workers.

        `alone`: assume that no job is ahead, and that all stops are confirmed.
        """
        turn = self._turns[job.id]
        after = self.decide(
            [task for _, tasks in self.competitors[turn if alone else 0 : turn + 1] for task in tasks],
            workers,
            self.get_job,
            unconfirmed_stops=() if alone else self.unconfirmed_stops,
            stopping_gangs=self.stopping_gangs,
        )
        return sum(each.task.job == job.id for each in after) > self._placed_by_job.get(job.id, 0)

    def has_ended(self, job_id: JobId) -> bool:
        job = self.get_job(job_id)
        return job is not None and (job.cancelled or job.end is not None)

    def _time_of(self, change: Change) -> float:
        """Return the time of a change: the end of a cool-down, or now."""
        if change.kind is not ChangeKind.RESTS:
            return self.now
        return next(each.cooldown_until for each in self.workers if each.id == change.subject)

    def _stops_after(self, change: Change) -> list[WorkerId]:
        """Return the workers with unconfirmed stops after a change. The end of a job confirms its stops."""
        stops = self.unconfirmed_stops
        if change.kind is not ChangeKind.JOB_ENDS or not isinstance(stops, Mapping):
            return list(stops)
        return [
            worker
            for worker, jobs in stops.items()
            if any(job is None or not ends_with(job, change.subject) for job in jobs)
        ]


def _changed_job(job: Job, change: Change) -> Job:
    changed, resources, amount = copy(job), job.resources, change.amount
    if change.kind in _RESUBMISSIONS:
        changed.order = _ORDER_OF_RESUBMITTED
    match change.kind:
        case ChangeKind.DROP:
            rest = tuple(each for each in job.constraints if format_constraint(each) != change.subject)
            changed.constraints = rest
        case ChangeKind.TOLERATE:
            changed.tolerations = (*job.tolerations, change.subject)
        case ChangeKind.SPREAD:
            changed.spread = True
        case ChangeKind.PRIORITY:
            changed.priority = Priority(change.subject)
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


def ends_with(job: JobId, ended: str) -> bool:
    """Return whether a job ends when the job `ended` ends: it is the same job, or a child job at any depth."""
    return f"{job}/".startswith(f"{ended}/")


def _changed_worker(worker: Worker, change: Change) -> Worker:
    if change.kind is ChangeKind.JOB_ENDS:
        return without_claims(worker, lambda attempt: ends_with(attempt.task.job, change.subject))
    if change.kind is ChangeKind.TASK_ENDS:
        return without_claims(worker, lambda attempt: str(attempt.task) == change.subject)
    if change.subject != worker.id or change.kind not in _REPAIRS:
        return worker
    changed = copy(worker)
    changed.cooldown_until = 0.0
    match change.kind:
        case ChangeKind.UNCORDON | ChangeKind.COMPLETES:
            changed.draining, changed.quarantined = False, False
        case ChangeKind.RECOVERS:
            changed.condition, changed.unschedulable = WorkerCondition.HEALTHY, False
    return changed


def without_claims(worker: Worker, has_ended: Callable[[AttemptId], bool]) -> Worker:
    """Return the worker without the claims of attempts that have ended: the same object if there are none."""
    claims = {attempt: claim for attempt, claim in worker.claims.items() if not has_ended(attempt)}
    if len(claims) == len(worker.claims):
        return worker
    changed = copy(worker)
    changed.claims = claims
    return changed
