"""The single change that would place what waits: a constraint to drop, a job to await, a worker to mend."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.ids import JobId
from iris_cli.core.scheduling import wording
from iris_cli.core.scheduling.capacity import Amounts, first_of, mask_of
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.groups import Group
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.verdicts import Case, Verdict, fits
from iris_cli.core.units import format_duration
from iris_cli.core.worker import WorkerCondition

_TRIES = 20  # near misses looked at
_BUSY = frozenset(
    {
        ReasonKind.CHIPS,
        ReasonKind.GPUS,
        ReasonKind.MEMORY,
        ReasonKind.CPU,
        ReasonKind.STOPPING,
        ReasonKind.BEHIND,
    }
)


def single_change(case: Case, nearest: list[Verdict]) -> str:
    """In words, or "" where no single change does it. `nearest` are the near misses, the nearest first."""
    for proposal, selected in _relaxations(case):
        served_by = _served_by(case, selected & _ready(case))
        if served_by:
            return f"{proposal}: {served_by}"
    if _missing(case) > 1:
        return ""
    mends = (_mend(case, verdict) for verdict in nearest[:_TRIES])
    return next(filter(None, mends), "")


def _ready(case: Case) -> int:
    fleet = case.context.fleet
    room = case.context.with_room(case.requirement.need)
    return fleet.healthy & fleet.rested & fleet.settled & case.open & room


def _relaxations(case: Case) -> Iterator[tuple[str, int]]:
    """Each constraint left out, each taint tolerated: in words, and the workers selected then."""
    fleet, requirement = case.context.fleet, case.requirement
    for dropped in requirement.required:
        allowed = fleet.everyone
        for constraint in requirement.required:
            if constraint is not dropped:
                allowed &= fleet.satisfying(constraint)
        yield f"drop {format_constraint(dropped)}", requirement.equipped & allowed & requirement.tolerated
    for taint in fleet.taints:
        if taint not in requirement.job.tolerations:
            tolerated = fleet.tolerating((*requirement.job.tolerations, taint))
            yield f"tolerate {taint}", requirement.equipped & requirement.allowed & tolerated


def _served_by(case: Case, workers: int) -> str:
    shape, fleet = case.requirement.shape, case.context.fleet
    if shape is None:
        return f"worker {fleet.workers[first_of(workers)].id} fits" if workers else ""
    groups = [group for group in fleet.groups(shape.group_by).groups if fits(group, shape, workers)]
    if len(groups) < shape.groups:
        return ""
    names = [wording.unit_name(shape, group) for group in groups[: shape.groups]]
    return f"{', '.join(names)} {'fits' if len(names) == 1 else 'fit'}"


def _missing(case: Case) -> int:
    """How many groups or workers are missing."""
    shape = case.requirement.shape
    if shape is None:
        return 1
    groups = case.context.fleet.groups(shape.group_by).groups
    return shape.groups - sum(fits(group, shape, case.candidates) for group in groups)


def _mend(case: Case, verdict: Verdict) -> str:
    """What would make one near miss serve."""
    shape, context = case.requirement.shape, case.context
    name = wording.unit_name(shape, verdict.group)
    if verdict.kind in _BUSY:
        for job in wording.holders(context, verdict.lacking):
            if fits(verdict.group, shape, case.candidates | _freed_by(case, verdict.group, job)):
                return f"{name} frees when job {job} ends"
    if verdict.kind in (ReasonKind.UNHEALTHY, ReasonKind.COOLDOWN) and verdict.lacking.bit_count() == 1:
        otherwise = case.open & context.fleet.settled & context.with_room(case.requirement.need)
        if fits(verdict.group, shape, case.candidates | verdict.lacking & otherwise):
            return f"{name} fits {_recovery(context, first_of(verdict.lacking))}"
    return ""


def _freed_by(case: Case, group: Group, job: JobId) -> int:
    """The members that would have room if all attempts of a job ended."""
    freed = []
    for position in group.members:
        held = case.context.fleet.workers[position].claims
        claims = [claim for attempt, claim in held.items() if attempt.task.job == job]
        left = case.context.left(position)
        then = Amounts(
            left.cpu_millis + sum(claim.cpu_millis for claim in claims),
            left.memory + sum(claim.memory for claim in claims),
            left.gpus + sum(len(claim.gpus) for claim in claims),
            left.chips + sum(claim.chips for claim in claims),
        )
        if claims and then.covers(case.requirement.need):
            freed.append(position)
    return mask_of(freed) & case.requirement.healthy & case.open


def _recovery(context: SchedulingContext, position: int) -> str:
    worker = context.fleet.workers[position]
    if worker.unschedulable:
        return f"when {worker.id} is mended ({worker.reason})"
    if worker.draining or worker.quarantined:
        return f"after `iris worker uncordon {worker.id}`"
    if worker.condition is WorkerCondition.HEALTHY:
        rest = format_duration(worker.cooldown_until - context.fleet.now)
        return f"in {rest}, when {worker.id} has cooled down"
    return f"when {worker.id} ({worker.condition}) is healthy again"
