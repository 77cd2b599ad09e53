"""Find and describe one change that would place a pending task or gang: a dropped constraint, the end of a job, ..."""

from collections.abc import Iterator
from itertools import islice

from iris_cli.core import INCOMPLETE, Job, JobId, Priority, WorkerId, clip, format_duration
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.model.worker import (
    VM_IS_PREEMPTED,
    Amounts,
    Worker,
    WorkerCapacity,
    WorkerCondition,
    is_drained_by_iris,
)
from iris_cli.core.scheduling.explain import wording
from iris_cli.core.scheduling.explain.explanation import Change, ChangeKind, CycleRecord, ends_with
from iris_cli.core.scheduling.explain.group_checks import Case, GroupCheck, fits, group_containing
from iris_cli.core.scheduling.order import TasksByJob
from iris_cli.core.scheduling.placement import VARIANT, Sites
from iris_cli.core.scheduling.reasons import BUSY_KINDS, ReasonKind
from iris_cli.core.scheduling.sets import AMOUNT_KINDS, Group, first_of, mask_of, positions_of

_MAX_NEAR_MISSES = 20  # maximum number of near misses examined
_MAX_TRIES = 10  # maximum number of changes tried, each in a simulated cycle
_BUSY = BUSY_KINDS | {ReasonKind.STOPPING, ReasonKind.BEHIND}
_TAKEN_BY_OTHERS = frozenset({ReasonKind.RESERVED, ReasonKind.BEHIND})
_REDUCTIONS = (ChangeKind.LESS_CPU, ChangeKind.LESS_MEMORY, ChangeKind.FEWER_GPUS)
_CHANGES_JOB = (ChangeKind.DROP, ChangeKind.TOLERATE, ChangeKind.SPREAD, ChangeKind.PRIORITY, *_REDUCTIONS)


def single_change(
    case: Case, job: Job, nearest: list[GroupCheck], record: CycleRecord, dependents: TasksByJob
) -> Change | None:
    """Return the first change that would place tasks in a repetition of the recorded cycle, or None.

    `dependents`: by job, the tasks that are held back only until this job ends.
    """
    proposals = dict.fromkeys(islice(_proposals(case, job, nearest), 2 * _MAX_NEAR_MISSES))
    for change in list(proposals)[:_MAX_TRIES]:
        ending = JobId(change.subject) if change.kind is ChangeKind.JOB_ENDS else None
        workers = record.workers_with_change(job.id, change, dependents.get(ending, ()) if ending else ())
        if workers:
            ended = ending is not None and record.has_ended(ending)
            text = _describe_change(case, change, workers, has_ended=ended)
            return Change(kind=change.kind, subject=change.subject, amount=change.amount, text=text)
    return None


def _proposals(case: Case, job: Job, nearest: list[GroupCheck]) -> Iterator[Change]:
    yield from _relaxations(case)
    for check in nearest[:_MAX_NEAR_MISSES]:
        yield from _repairs(case, job.id, check)
    if job.priority is not Priority.HIGH and any(check.kind in _TAKEN_BY_OTHERS for check in nearest):
        yield Change(kind=ChangeKind.PRIORITY, subject=Priority.HIGH.value)
    yield from _reductions(case)


def _relaxations(case: Case) -> Iterator[Change]:
    """Yield changes with which enough workers fit: spread over regions, a dropped constraint, a tolerated taint."""
    fleet, requirement = case.context.fleet, case.requirement
    available = (
        fleet.schedulable
        & fleet.not_cooling_down
        & fleet.without_unconfirmed_stops
        & requirement.with_device
        & case.had_room
    )
    shape = requirement.shape
    may_spread = shape is not None and shape.groups > 1 and not requirement.job.spread
    if may_spread and _are_enough(case, available & requirement.selected, VARIANT):
        yield Change(kind=ChangeKind.SPREAD)
    for dropped in requirement.required:
        allowed = fleet.workers_satisfying_all(each for each in requirement.required if each != dropped)
        if _are_enough(case, available & allowed & requirement.tolerated):
            yield Change(kind=ChangeKind.DROP, subject=format_constraint(dropped))
    for taint in fleet.taints:
        if taint not in requirement.job.tolerations:
            tolerated = fleet.workers_tolerated_by((*requirement.job.tolerations, taint))
            if _are_enough(case, available & requirement.satisfying & tolerated):
                yield Change(kind=ChangeKind.TOLERATE, subject=taint)


def _are_enough(case: Case, workers: int, depth: int = 0) -> bool:
    """Return whether these workers are enough. `depth`: location parts that all groups share (default: as required)."""
    shape = case.requirement.shape
    if shape is None:
        return bool(workers)
    groups = case.context.fleet.groups(shape.group_by).groups
    fitting = [group.number for group in groups if fits(group, shape, workers)]
    sites = Sites(case.context.fleet, case.requirement)
    return len(sites.largest_site(fitting, depth or sites.required_depth)) >= shape.groups


def _reductions(case: Case) -> Iterator[Change]:
    """Yield reductions of one requested resource, to not less than half of the request."""
    for number, kind in enumerate(_REDUCTIONS):
        need, largest_request = case.requirement.need[number], _enough_for_one_more(case, number)
        if largest_request < need <= 2 * largest_request:
            yield Change(kind=kind, amount=largest_request)


def _enough_for_one_more(case: Case, number: int) -> int:
    """Return the largest request of one resource with which one more task, or the gang, would fit; 0 if none."""
    context, requirement = case.context, case.requirement
    others = [other for other in range(len(requirement.need)) if other != number]
    candidates = requirement.eligible
    for other in others:
        candidates &= context.dimensions[other].workers_now[requirement.need[other]]
    for position in positions_of(requirement.eligible & case.reserved):
        free = case.free_amounts(position)
        candidates |= all(free[other] >= requirement.need[other] for other in others) << position
    shape = requirement.shape
    if shape is None:
        return _nth([case.free_amounts(position)[number] for position in positions_of(candidates)], 1)
    groups = context.fleet.groups(shape.group_by).groups

    def largest_request_in(group: Group) -> int:
        free = [case.free_amounts(position)[number] for position in positions_of(group.mask & candidates)]
        return _nth(free, shape.size)

    sites = Sites(context.fleet, requirement).tiers[-1]
    largest = [[largest_request_in(groups[each]) for each in site] for site in sites]
    return max((_nth(each, shape.groups) for each in largest), default=0)


def _nth(amounts: list[int], number: int) -> int:
    """Return the `number`th largest amount; 0 if there are fewer amounts."""
    return sorted(amounts, reverse=True)[number - 1] if len(amounts) >= number else 0


def _repairs(case: Case, job_id: JobId, check: GroupCheck) -> Iterator[Change]:
    """Yield the events and repairs after which the task or gang could run on one near miss."""
    if check.kind in _BUSY:
        for job in wording.jobs_on(case.context, check.rejected):
            if job == job_id:
                yield from _ends_of_own_tasks(case, job_id, check)
            elif not ends_with(job_id, job) and fits(
                check.group, case.requirement.shape, _fitting_after_end_of(case, check.group, job)
            ):
                yield Change(kind=ChangeKind.JOB_ENDS, subject=job)
    if check.kind in (ReasonKind.UNHEALTHY, ReasonKind.COOLDOWN):
        position = first_of(check.rejected)
        fitting = case.requirement.eligible & case.had_room | 1 << position
        worker = case.context.fleet.workers[position]
        kind = _recovery(worker)
        if kind is not None and fits(check.group, case.requirement.shape, fitting):
            yield Change(kind=kind, subject=worker.id)


def _ends_of_own_tasks(case: Case, job_id: JobId, check: GroupCheck) -> Iterator[Change]:
    """Yield the ends of the pending job's own tasks on the rejected workers: the job can't wait for its own end."""
    for position in positions_of(check.rejected):
        for attempt in sorted(case.context.fleet.workers[position].claims):
            if attempt.task.job == job_id:
                yield Change(kind=ChangeKind.TASK_ENDS, subject=str(attempt.task))


def _fitting_after_end_of(case: Case, group: Group, job: JobId) -> int:
    """Return the workers that had room, and the workers of `group` that would have room after the end of `job`."""
    requirement, freed = case.requirement, []
    for position in group.members:
        worker = case.context.fleet.workers[position]
        claims = [claim for attempt, claim in worker.claims.items() if attempt.task.job == job]
        amounts = WorkerCapacity.of(worker).free, *map(Amounts.claimed, claims)
        after = Amounts(*map(sum, zip(*amounts, strict=True)))
        if claims and after.covers(requirement.need):
            freed.append(position)
    return requirement.eligible & case.had_room | requirement.schedulable & mask_of(freed)


def _recovery(worker: Worker) -> ChangeKind | None:
    """Return the kind of change that would make an unavailable worker available, or None if there is none."""
    if worker.unschedulable:
        return ChangeKind.RECOVERS
    if worker.drain_reason == INCOMPLETE and not worker.quarantined:
        return ChangeKind.COMPLETES
    if is_drained_by_iris(worker):
        return None
    if worker.draining or worker.quarantined:
        return ChangeKind.UNCORDON
    if worker.condition is not WorkerCondition.HEALTHY:
        return ChangeKind.RECOVERS
    return ChangeKind.RESTS if worker.reason != VM_IS_PREEMPTED else None


def _describe_change(case: Case, change: Change, workers: list[WorkerId], *, has_ended: bool) -> str:
    fleet, shape = case.context.fleet, case.requirement.shape
    groups = list(dict.fromkeys(group_containing(case.context, case.requirement, each) for each in workers))
    if change.kind not in _CHANGES_JOB:
        changed = [
            group for group in groups if any(_is_about(change, fleet.workers[at]) for at in group.members)
        ]
        groups = changed or groups
    names = wording.unit_name(shape, *groups[: shape.groups if shape else 1])
    has_several = shape is not None and len(groups) > 1
    return _change_text(case, change, names, several=has_several, has_ended=has_ended)


def _is_about(change: Change, worker: Worker) -> bool:
    tasks = [attempt.task for attempt in worker.claims]
    return change.subject in (worker.id, *(task.job for task in tasks), *map(str, tasks))


def _change_text(case: Case, change: Change, names: str, *, several: bool, has_ended: bool) -> str:
    """Return the text for a change: `drop region=eu: slice v4b fits`.

    `names` are the workers or groups on which the tasks would be placed; `several`: more than one. `has_ended`: the
    job that the change is about has ended, and only its attempts have not stopped yet.
    """
    subject, verb = change.subject, "fit" if several else "fits"
    match change.kind:
        case ChangeKind.DROP | ChangeKind.TOLERATE:
            return f"{change.kind} {clip(subject)}: {names} {verb}"
        case ChangeKind.SPREAD:
            return f"add --spread: {names} {verb}"
        case ChangeKind.PRIORITY:
            return f"set --priority {subject}: {names} {verb}"
        case ChangeKind.LESS_CPU | ChangeKind.LESS_MEMORY | ChangeKind.FEWER_GPUS:
            number = _REDUCTIONS.index(change.kind)
            amounts = change.amount, case.requirement.need[number]
            smaller, current = (wording.format_amount(AMOUNT_KINDS[number], each) for each in amounts)
            return f"request {smaller} instead of {current}: {names} {verb}"
        case ChangeKind.JOB_ENDS | ChangeKind.TASK_ENDS:
            prefix = "job " if change.kind is ChangeKind.JOB_ENDS else ""
            event = "has stopped" if has_ended else "ends"
            return f"{names} {'have' if several else 'has'} room when {prefix}{subject} {event}"
        case ChangeKind.UNCORDON:
            return f"{names} {verb} after `iris worker uncordon {subject}`"
        case ChangeKind.COMPLETES:
            return f"{names} {verb} when all VMs of its slice are healthy and set up"
    fleet = case.context.fleet
    worker = fleet.workers[fleet.ids.index(WorkerId(subject))]
    if change.kind is ChangeKind.RESTS:
        remaining_time = format_duration(worker.cooldown_until - fleet.now)
        return f"{names} {verb} in {remaining_time}, after the cool-down of {subject}"
    if worker.unschedulable:
        return f"{names} {verb} when {subject} is repaired ({worker.reason})"
    if worker.condition is WorkerCondition.UNTRUSTED:
        return f"{names} {verb} after `iris worker probe --accept-key {subject}`, if you trust that host"
    return f"{names} {verb} when {subject} ({worker.condition}) is healthy again"
