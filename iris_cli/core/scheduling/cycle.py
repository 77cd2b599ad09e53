"""One scheduling cycle: a pure function of its arguments."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, Device, Job, JobId, Limits, Task, TaskId, Worker, WorkerId, gc_paused
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain import group_checks, wording
from iris_cli.core.scheduling.explain.explain import Unmet, Waiting
from iris_cli.core.scheduling.explain.explanation import CycleRecord, UnconfirmedStops
from iris_cli.core.scheduling.explain.group_checks import Case, GroupCheck, fits, group_containing
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.gangs import GangPlacer, why_malformed
from iris_cli.core.scheduling.order import Entry, TasksByJob, build_queue, split_timed_out
from iris_cli.core.scheduling.placement import Assignment, Requirement, assign, take_best_worker
from iris_cli.core.scheduling.reasons import Reason, ReasonKind, WaitingKey
from iris_cli.core.scheduling.reservation import Reservations
from iris_cli.core.scheduling.sets import Group, first_of, positions_of

_NO_JOB = (Reason(kind=ReasonKind.INVALID, text="its job is unknown"),)


class SchedulingResult(Struct, frozen=True, kw_only=True):
    """The decisions of a cycle: `assignments` in the order of the decisions, the tasks of a gang by index.

    `timed_out_tasks` were not placed within their `scheduling_timeout`. `waiting` has the reasons of the other pending
    tasks and gangs. `reservations` has the names of the reserved groups for each gang, and of the reserved worker for
    each task. `reserved_for` has the gang or task for which each worker is reserved. `notable_choices` returns, for the
    first placed task of each job, why workers that rank higher were not chosen: `chose v4b: v4a busy`.
    """

    assignments: tuple[Assignment, ...]
    timed_out_tasks: tuple[TaskId, ...]
    waiting: Waiting
    reservations: Mapping[WaitingKey, tuple[str, ...]]
    reserved_for: Mapping[WorkerId, WaitingKey]
    notable_choices: Callable[[], dict[TaskId, str]]


@gc_paused
def find_assignments(
    pending_tasks: Iterable[Task] | TasksByJob,
    workers: Iterable[Worker],
    get_job: Callable[[JobId], Job | None],
    now: float,
    *,
    gang_reserve_after: float = 600.0,
    backoff_max: float = 600.0,
    unconfirmed_stops: UnconfirmedStops = (),
    stopping_gangs: Collection[JobId] = (),
    offered: Collection[Device] = (),
) -> SchedulingResult:
    """Decide the assignments of one cycle at `now`, in seconds since the epoch.

    If `pending_tasks` is a mapping (`TasksByJob`), all its tasks must be pending. The input is not changed, and its
    order has no effect. Workers in `unconfirmed_stops` accept no new tasks. After `gang_reserve_after` seconds (0:
    never), workers are reserved for a pending gang and for a task that needs a large part of a worker. The last round
    of the `stopping_gangs` has not ended: workers are reserved for them, but they are not placed. A cool-down longer
    than `backoff_max` is ignored: only a wrong clock can cause it. `offered`: devices that scale groups can add; a job
    that needs one of them is not reported as "will never run".
    """
    queue = build_queue(pending_tasks, get_job, now)
    fleet = Fleet(workers, now, Limits(backoff_max=backoff_max), unconfirmed_stops, offered)
    context = SchedulingContext(fleet, [Amounts.needed(job.resources) for job in queue.samples])
    requirements = [Requirement(job, context) for job in queue.samples]
    reservations = Reservations(context, gang_reserve_after, get_job)
    result = _place_all(queue.entries, requirements, context, reservations, stopping_gangs)
    no_job: Unmet = dict.fromkeys(queue.tasks_of_unknown_jobs, _NO_JOB)
    decide = partial(_decide, now=now, gang_reserve_after=gang_reserve_after, backoff_max=backoff_max)
    record = CycleRecord(
        queue=queue.entries,
        excluded=frozenset((*result.timed_out, *result.malformed)),
        placed=result.placed,
        get_job=get_job,
        workers=fleet.workers,
        unconfirmed_stops=unconfirmed_stops,
        stopping_gangs=stopping_gangs,
        now=now,
        decide=decide,
    )

    def requirement_of(job_id: JobId) -> Requirement:
        job = get_job(job_id)
        assert job is not None  # the job was placed
        return requirements[queue.sample_indexes[job.signature]]

    return SchedulingResult(
        assignments=tuple(result.placed),
        timed_out_tasks=tuple(result.timed_out),
        waiting=Waiting(context, record, {**no_job, **result.malformed, **result.unmet}),
        reservations={
            key: tuple(str(group.key) for group in groups) for key, groups in context.reservations.items()
        },
        reserved_for={fleet.ids[position]: key for position, key in context.reserved_by.items()},
        notable_choices=partial(_notable_choices, context, record, requirement_of),
    )


def _decide(*args: Any, **kwargs: Any) -> tuple[Assignment, ...]:
    return find_assignments(*args, **kwargs).assignments


class _Placements(NamedTuple):
    """The result of `_place_all`. `malformed`: reasons of malformed gangs. `unmet`: tasks and gangs without room."""

    placed: list[Assignment]
    timed_out: list[TaskId]
    malformed: dict[WaitingKey, tuple[Reason, ...]]
    unmet: dict[WaitingKey, Requirement]


def _place_all(
    queue: Iterable[Entry],
    requirements: Sequence[Requirement],
    context: SchedulingContext,
    reservations: Reservations,
    stopping_gangs: Collection[JobId],
) -> _Placements:
    """Place the tasks of each job in the queue, in order, if they fit. A large cycle takes most of its time here."""
    result = _Placements([], [], {}, {})
    placed, timed_out, malformed, unmet = result
    gangs, now = GangPlacer(context, reservations), context.fleet.now
    for _, _, job_id, job, tasks, sample, is_timed_out in queue:
        if is_timed_out:
            late_tasks, tasks = split_timed_out(job, tasks, now)
            timed_out += [task.id for task in late_tasks]
            if not tasks:
                continue
        requirement = requirements[sample]
        if requirement.shape is not None:
            problem = why_malformed(job, tasks)
            if problem is not None:
                malformed[job_id] = (problem,)
            elif job_id in stopping_gangs:
                gangs.reserve(job, requirement)
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
        if (
            requirement.exhausted
            and requirement.reservable
            and job.submitted_at <= reservations.latest_submission  # cheaper than a call
            and reservations.are_allowed(job)
        ):
            first = next((task.id for task in tasks if task.id in unmet), None)
            if first is not None:
                requirement.reservable = reservations.reserve_worker(first, requirement)
    return result


# Reasons for a placement: why workers or groups that rank higher were not chosen.


_STATE_WORDS = {
    ReasonKind.COOLDOWN: "cooling down",
    ReasonKind.TIME_LEFT: "ends too soon",
    ReasonKind.STOPPING: "stopping",
    ReasonKind.RESERVED: "reserved",
}


_MAX_CHECKED = 64  # maximum number of workers or groups examined for a job


def _notable_choices(
    context: SchedulingContext, record: CycleRecord, requirement_of: Callable[[JobId], Requirement]
) -> dict[TaskId, str]:
    """Return, for the first placed task of each job, why workers that rank higher were not chosen."""
    by_job: dict[JobId, list[Assignment]] = {}
    for each in record.placed:
        if each.task.job not in by_job or requirement_of(each.task.job).shape:
            by_job.setdefault(each.task.job, []).append(each)
    found: dict[TaskId, str] = {}
    for job, placed in by_job.items():
        requirement = requirement_of(job)
        chosen = dict.fromkeys(group_containing(context, requirement, each.worker) for each in placed)
        first = min(chosen, key=lambda group: group.number)
        rejected = wording.list_few(_rejected_before(context, record, job, requirement, first))
        if rejected:
            names = ", ".join(str(group.key) for group in chosen)
            found[placed[0].task] = f"chose {names}: {rejected}"
    return found


def _rejected_before(
    context: SchedulingContext, record: CycleRecord, job: JobId, requirement: Requirement, chosen: Group
) -> Iterator[str]:
    """Yield a text for each group before `chosen` that is as preferred, but is busy, unhealthy or already assigned."""
    fitting_if_idle = requirement.selected & context.workers_of_size(requirement.need)
    before = group_checks.rejected_before(Case(context, requirement, context.unreserved), chosen.number)
    for check in islice(before, _MAX_CHECKED):
        if not _is_as_good(context, requirement, check.group, chosen):
            continue
        if check.kind is ReasonKind.BEHIND:
            taker = record.first_taker(job, [context.fleet.ids[at] for at in positions_of(check.rejected)])
            if taker is not None:
                yield f"{check.group.key} assigned to {taker}"
        elif check.kind is not None and fits(check.group, requirement.shape, fitting_if_idle):
            yield f"{check.group.key} {_state_word(context, check)}"


def _is_as_good(context: SchedulingContext, requirement: Requirement, group: Group, chosen: Group) -> bool:
    """Return whether a group is at least as preferred as the chosen group. CPU tasks prefer hosts without devices."""
    if requirement.shape is None and requirement.needs_no_device:
        without_devices = context.cpu_tiers[0]
        if chosen.mask & without_devices and not group.mask & without_devices:
            return False
    return _met_preferences(requirement, group) >= _met_preferences(requirement, chosen)


def _met_preferences(requirement: Requirement, group: Group) -> int:
    """Return the number of met preferences, summed over the workers of a group that the job would use."""
    wanted, found = requirement.shape.size if requirement.shape else 1, 0
    for met, level in zip(reversed(range(len(requirement.levels))), requirement.levels, strict=True):
        used = min(wanted, (group.mask & requirement.selected & level).bit_count())
        wanted -= used
        found += met * used
    return found


def _state_word(context: SchedulingContext, check: GroupCheck) -> str:
    """Return the state of the rejected workers: `busy`, `draining`, `cooling down`."""
    if check.kind is ReasonKind.UNHEALTHY:
        return wording.state_text(context.fleet.workers[first_of(check.rejected)])
    return _STATE_WORDS.get(check.kind, "busy") if check.kind else ""
