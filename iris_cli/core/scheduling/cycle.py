"""One scheduling cycle: a pure function of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, Device, Job, JobId, Limits, Task, TaskId, Worker, WorkerId, collector
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain import wording
from iris_cli.core.scheduling.explain.expected import ExpectedStart, TimeLimits
from iris_cli.core.scheduling.explain.explain import Explainer
from iris_cli.core.scheduling.explain.explanation import CycleRecord, Explanation, Turns, UnconfirmedStops
from iris_cli.core.scheduling.explain.verdicts import Case, Verdict, fits, group_on, rejected_before
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.gangs import GangPlacer, why_malformed
from iris_cli.core.scheduling.order import Entry, TasksByJob, queue_of, split_overdue
from iris_cli.core.scheduling.placement import Assignment, Requirement, assign, take_best_worker
from iris_cli.core.scheduling.reasons import Reason, ReasonKind
from iris_cli.core.scheduling.reservation import Reservations
from iris_cli.core.scheduling.sets import Group, first_of, positions_of

WaitingKey = TaskId | JobId  # the id of a task outside a gang, or the id of a gang's job

_Unmet = dict[WaitingKey, Requirement | Reason]

_NO_JOB = Reason(kind=ReasonKind.INVALID, text="its job is unknown")


class Waiting(Mapping[WaitingKey, tuple[Reason, ...]]):
    """The reasons of each pending task or gang, in order of precedence. They are computed on access."""

    def __init__(self, explainer: Explainer, unmet: _Unmet) -> None:
        self._explainer = explainer
        self._unmet = unmet

    def __getitem__(self, key: WaitingKey) -> tuple[Reason, ...]:
        found = self._unmet[key]
        return (found,) if isinstance(found, Reason) else self._explainer.reasons(found, key)

    def causes(self, keys: Sequence[WaitingKey]) -> Sequence[object]:
        """Return an object for each key: the same object for equal causes, None for a key that is not pending."""
        found = list(map(self._unmet.get, keys))
        if reserved_for := self._explainer.reservations:
            return [
                key if what is not None and reserved_for.get(key) else what
                for key, what in zip(keys, found, strict=True)
            ]
        return found

    def __iter__(self) -> Iterator[WaitingKey]:
        return iter(self._unmet)

    def __len__(self) -> int:
        return len(self._unmet)

    def __repr__(self) -> str:
        return repr(dict(self))

    def explain(self, key: WaitingKey) -> Explanation:
        """Return the explanation of a pending task or gang. Raises KeyError for other keys."""
        found = self._unmet[key]
        if isinstance(found, Reason):
            return Explanation(reasons=(found,))
        return self._explainer.explain(found, key)

    def expected_start(self, key: WaitingKey, limits: TimeLimits) -> ExpectedStart | None:
        """Return the expected start if only tasks with time limits block the start, otherwise None. Raises KeyError."""
        found = self._unmet[key]
        return None if isinstance(found, Reason) else self._explainer.expected_start(found, key, limits)


class SchedulingResult(Struct, frozen=True, kw_only=True):
    """The decisions of a cycle: `assignments` in the order of the decisions, the tasks of a gang by index.

    `timed_out_tasks` were not placed within their `scheduling_timeout`. `waiting` has the other pending tasks, and
    gangs by their jobs' ids. `reservations` has the names of the groups reserved for each gang, or of the worker
    reserved for each task. `reserved_for` has the gang or task for which each worker is reserved.
    """

    assignments: tuple[Assignment, ...]
    timed_out_tasks: tuple[TaskId, ...]
    waiting: Waiting
    reservations: Mapping[WaitingKey, tuple[str, ...]]
    reserved_for: Mapping[WorkerId, WaitingKey]
    choices: Choices

    def only(self, assignments: tuple[Assignment, ...]) -> SchedulingResult:
        """Return the result with only these assignments."""
        return SchedulingResult(
            assignments=assignments,
            timed_out_tasks=self.timed_out_tasks,
            waiting=self.waiting,
            reservations=self.reservations,
            reserved_for=self.reserved_for,
            choices=self.choices,
        )

    def chosen(self, task: TaskId) -> str:
        """Return why a task was placed on its worker (`chose v4b: v4a busy`), "" if it was not placed."""
        return self.choices.reason(task)

    def notable_choices(self) -> dict[TaskId, str]:
        """Return, for the first placed task of each job, why workers that rank higher were not chosen."""
        return self.choices.notable_choices()


@collector.gc_paused
def find_assignments(
    pending_tasks: Iterable[Task] | TasksByJob,
    workers: Iterable[Worker],
    get_job: Callable[[JobId], Job | None],
    now: float,
    *,
    gang_reserve_after: float = 600.0,
    backoff_max: float = 600.0,
    unconfirmed_stops: UnconfirmedStops = (),
    offered: Collection[Device] = (),
) -> SchedulingResult:
    """Decide the assignments of one cycle at `now`, in seconds since the epoch.

    If `pending_tasks` maps jobs to tasks, all these tasks must be pending. The input is not changed, and its order has
    no effect. Workers in `unconfirmed_stops` accept no new tasks. After `gang_reserve_after` seconds (0: never),
    workers are reserved for a pending gang and for a task that needs a large part of a worker. A cool-down longer than
    `backoff_max` is ignored, because it shows that a clock was wrong. `offered`: devices that scale groups can add; a
    job that needs one of them is not reported as "will never run".
    """
    queue = queue_of(pending_tasks, get_job, now)
    fleet = Fleet(workers, now, Limits(backoff_max=backoff_max), unconfirmed_stops, offered)
    context = SchedulingContext(fleet, [Amounts.needed(job.resources) for job in queue.samples])
    requirements = [Requirement(job, context) for job in queue.samples]
    served = _serve(queue.entries, requirements, context, Reservations(context, gang_reserve_after))
    unmet: _Unmet = {**dict.fromkeys(queue.orphans, _NO_JOB), **served.malformed, **served.unmet}
    decide = partial(_decide, now=now, gang_reserve_after=gang_reserve_after, backoff_max=backoff_max)
    record = CycleRecord(
        queue=queue.entries,
        kept_out=frozenset((*served.timed_out, *served.malformed)),
        placed=served.placed,
        get_job=get_job,
        workers=fleet.workers,
        unconfirmed_stops=unconfirmed_stops,
        decide=decide,
    )

    def requirement_of(job_id: JobId) -> Requirement:
        job = get_job(job_id)
        assert job is not None  # the job was placed
        return requirements[queue.numbers[job.signature]]

    return SchedulingResult(
        assignments=tuple(served.placed),
        timed_out_tasks=tuple(served.timed_out),
        waiting=Waiting(Explainer(context, record), unmet),
        reservations={
            key: tuple(str(group.key) for group in groups) for key, groups in context.reservations.items()
        },
        reserved_for={fleet.ids[position]: key for position, key in context.reserved_by.items()},
        choices=Choices(context, requirement_of, record),
    )


def _decide(*args: Any, **kwargs: Any) -> tuple[Assignment, ...]:
    return find_assignments(*args, **kwargs).assignments


class _Served(NamedTuple):
    """The result of `_serve`. `malformed` gangs stay pending, with a reason. `unmet` tasks and gangs found no room."""

    placed: list[Assignment]
    timed_out: list[TaskId]
    malformed: dict[WaitingKey, Reason]
    unmet: dict[WaitingKey, Requirement]


def _serve(
    queue: Iterable[Entry],
    requirements: Sequence[Requirement],
    context: SchedulingContext,
    reservations: Reservations,
) -> _Served:
    """Place the tasks of each job in the queue, in order, if they fit. A large cycle spends most of its time here."""
    served = _Served([], [], {}, {})
    placed, timed_out, malformed, unmet = served
    gangs, now = GangPlacer(context, reservations), context.fleet.now
    for _, _, job_id, job, tasks, number, overdue in queue:
        if overdue:
            late, tasks = split_overdue(job, tasks, now)
            timed_out += [task.id for task in late]
            if not tasks:
                continue
        requirement = requirements[number]
        if requirement.shape is not None:
            problem = why_malformed(job, tasks)
            if problem is not None:
                malformed[job_id] = problem
            elif not gangs.place(job, tasks, requirement, placed):
                unmet[job_id] = requirement
            continue
        for task in tasks:
            if requirement.exhausted or not take_best_worker(context, requirement):
                unmet[task.id] = requirement
            elif requirement.need.gpus:
                placed.append(assign(context, requirement, task, requirement.position))
            else:
                placed.append(Assignment(task.id, requirement.worker))
        if requirement.exhausted and requirement.reservable and job.submitted_at <= reservations.due_until:
            first = next((task.id for task in tasks if task.id in unmet), None)
            if first is not None:
                requirement.reservable = reservations.reserve_worker(first, requirement)
    return served


# Reasons for a placement: why workers or groups that rank higher were not chosen.


_WORDS = {
    ReasonKind.COOLDOWN: "cooling down",
    ReasonKind.STOPPING: "stopping",
    ReasonKind.RESERVED: "reserved",
}


_MAX_CHECKED = 64  # higher-ranking workers or groups that are examined


class Choices:
    """The reasons for the placements of a cycle, computed on access."""

    def __init__(
        self, context: SchedulingContext, requirement_of: Callable[[JobId], Requirement], record: CycleRecord
    ) -> None:
        self._context = context
        self._requirement_of = requirement_of
        self._record = record
        self._turns = Turns(record)
        self._large_enough: dict[Requirement, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choices) and self._record.placed == other._record.placed

    __hash__ = None  # type: ignore[assignment]  # the record of a cycle grows

    def reason(self, task: TaskId) -> str:
        """Return `chose v4b: v4a busy`, or "" for a task that was not placed."""
        of_job = [each for each in self._record.placed if each.task.job == task.job]
        own = [each for each in of_job if each.task == task]
        if not own:
            return ""
        return self._in_words(task.job, of_job if self._requirement_of(task.job).shape else own)

    def notable_choices(self) -> dict[TaskId, str]:
        """Return, for the first placed task of each job, why workers that rank higher were not chosen."""
        by_job: dict[JobId, list[Assignment]] = {}
        for each in self._record.placed:
            if each.task.job not in by_job or self._requirement_of(each.task.job).shape:
                by_job.setdefault(each.task.job, []).append(each)
        reasons = {placed[0].task: self._in_words(job, placed) for job, placed in by_job.items()}
        return {task: text for task, text in reasons.items() if ": " in text}

    def _in_words(self, job: JobId, placed: list[Assignment]) -> str:
        requirement = self._requirement_of(job)
        chosen = dict.fromkeys(group_on(self._context, requirement, each.worker) for each in placed)
        names = ", ".join(str(group.key) for group in chosen)
        passed = wording.few(self._passed_over(job, requirement, min(chosen, key=lambda group: group.number)))
        return f"chose {names}" + (f": {passed}" if passed else "")

    def _passed_over(self, job: JobId, requirement: Requirement, chosen: Group) -> Iterator[str]:
        """Yield the equally good groups with a lower name that were busy, unhealthy or taken by other jobs."""
        context = self._context
        before = rejected_before(Case(context, requirement, context.open), chosen.number)
        for verdict in islice(before, _MAX_CHECKED):
            if not _is_as_good(context, requirement, verdict.group, chosen):
                continue
            if verdict.kind is ReasonKind.BEHIND:
                workers = [context.fleet.ids[position] for position in positions_of(verdict.rejected)]
                taker = self._turns.first_before(job, workers)
                if taker is not None:
                    yield f"{verdict.group.key} taken by {taker}"
            elif verdict.kind is not None and self._could_serve(requirement, verdict.group):
                yield f"{verdict.group.key} {_word(context, verdict)}"

    def _could_serve(self, requirement: Requirement, group: Group) -> bool:
        """Return whether the group could run the tasks if it were idle."""
        large_enough = self._large_enough.get(requirement)
        if large_enough is None:
            large_enough = self._context.large_enough(requirement.need)
            self._large_enough[requirement] = large_enough
        return fits(group, requirement.shape, requirement.selected & large_enough)


def _is_as_good(context: SchedulingContext, requirement: Requirement, one: Group, chosen: Group) -> bool:
    """Return whether a group is at least as preferred as the chosen one. CPU tasks prefer hosts without devices."""
    plain_first = (
        requirement.shape is None and requirement.needs_no_device and chosen.mask & context.cpu_tiers[0]
    )
    as_many = _preferences(requirement, one) >= _preferences(requirement, chosen)
    return as_many and bool(not plain_first or one.mask & context.cpu_tiers[0])


def _preferences(requirement: Requirement, group: Group) -> int:
    """Return the sum of met preferences over the best workers of a group, as many workers as the job needs."""
    wanted, found = requirement.shape.size if requirement.shape else 1, 0
    for met, level in zip(reversed(range(len(requirement.levels))), requirement.levels, strict=True):
        used = min(wanted, (group.mask & requirement.selected & level).bit_count())
        wanted -= used
        found += met * used
    return found


def _word(context: SchedulingContext, verdict: Verdict) -> str:
    if verdict.kind is ReasonKind.UNHEALTHY:
        return wording.state(context.fleet.workers[first_of(verdict.rejected)])
    return _WORDS.get(verdict.kind, "busy") if verdict.kind else ""
