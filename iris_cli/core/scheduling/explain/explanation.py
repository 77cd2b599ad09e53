"""What there is to say about an entry that waits, as data, and who took the room that it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

from iris_cli.core import Constraint, JobId, WorkerId
from iris_cli.core.model.job import Job, Priority, Signature
from iris_cli.core.scheduling.explain.what_if import Change, CycleRecord
from iris_cli.core.scheduling.reasons import Reason, ReasonKind


class Taker(Struct, frozen=True, kw_only=True):
    """A job that was placed earlier in this cycle, and the workers it took.

    It may be the pending job itself, by other tasks.
    """

    job: JobId
    priority: Priority
    workers: tuple[WorkerId, ...]

    def __str__(self) -> str:
        return self.job if self.priority is Priority.NORMAL else f"{self.job} ({self.priority})"


class Turns:
    """The order in which the jobs of a cycle were served, and what each took; worked out when asked."""

    def __init__(self, record: CycleRecord) -> None:
        self._record = record

    def takers(self, job: Job, workers: Iterable[WorkerId]) -> list[Taker]:
        """Those who took room on these workers before a job had its turn, in the order of theirs."""
        return list(self._takers(self._turns[job.id], workers))

    def first_before(self, job: JobId, workers: Iterable[WorkerId]) -> Taker | None:
        """Who took the first of these workers before a job had its turn, not counting the job itself."""
        turns = (self._taken[worker][0] for worker in workers if worker in self._taken)
        first = min(turns, default=len(self._turns))
        return self._taker(first, []) if first < self._turns[job] else None

    def takers_before_all_like(self, job: Job, workers: Iterable[WorkerId]) -> Iterator[Taker]:
        """The same for the first of those that ask for the same and wait: they came before all of these."""
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
        """By worker, whose turn it was when something of it was taken."""
        found: dict[WorkerId, dict[int, None]] = {}
        for each in self._record.placed:
            found.setdefault(each.worker, {})[self._turns[each.task.job]] = None
        return {worker: tuple(turns) for worker, turns in found.items()}


class ConstraintCount(Struct, frozen=True, kw_only=True):
    """Of `workers` with a compatible device, `satisfied` satisfy the constraint."""

    constraint: Constraint
    satisfied: int
    workers: int


class DimensionCount(Struct, frozen=True, kw_only=True):
    """Of `workers` with a compatible device, `lacking` did not have `need` free when the cycle began.

    In thousandths of a core, bytes or GPUs; for chips, 1 stands for all chips of a worker.
    """

    kind: ReasonKind
    need: int
    lacking: int
    workers: int


class NearMiss(Struct, frozen=True, kw_only=True):
    """A worker or group that almost fits, the first kind of reason against it, and the workers it applies to.

    `text` says what is lacking: `2 cores free, not 4 cores`.
    """

    name: str
    kind: ReasonKind
    lacking: tuple[WorkerId, ...]
    text: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that the cycle knows about why a task or a gang is pending.

    `refused`: the number of workers that each kind of reason rejects, of those that the kinds before accept. For
    gangs, `groups_found` counts the groups with a compatible device, and `largest` is the name and size of the
    largest. `near_misses` begin with the nearest. `behind`: jobs that took room earlier in this cycle. `hints`:
    probable typing errors in the constraints. `change`: the one change that would place it, found by a trial.
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
