"""The texts of the reasons why tasks and gangs are pending.

Parameter `other`: some groups are suitable for the gang, and the text is about all other groups.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_

from iris_cli.core import INCOMPLETE, JobId, constraints, count, format_duration, format_memory
from iris_cli.core.constraint_syntax import format_constraint, typo_warnings
from iris_cli.core.model.worker import Claim, Worker, WorkerCapacity
from iris_cli.core.resources import AUTO, Device
from iris_cli.core.scheduling.context import SchedulingContext
from iris_cli.core.scheduling.explain.group_checks import GroupCheck, Rejection
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.placement import Requirement, Shape
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sets import AMOUNT_KINDS, Group, first_of, positions_of, vm_count, worker_number

_MAX_LISTED = 3

_PHRASES = {  # for several workers, and for one worker
    ReasonKind.UNHEALTHY: ("are unavailable", "is unavailable"),
    ReasonKind.COOLDOWN: ("are cooling down", "is cooling down"),
    ReasonKind.CHIPS: ("are busy", "is busy"),
    ReasonKind.TIME_LEFT: ("end before its time limit", "ends before its time limit"),
    ReasonKind.STOPPING: ("are still stopping tasks", "is still stopping tasks"),
    ReasonKind.RESERVED: ("are reserved", "is reserved"),
}


_OF_ONE_WORKER = frozenset({ReasonKind.UNHEALTHY, ReasonKind.COOLDOWN, ReasonKind.TIME_LEFT})
"""Kinds whose detail names one worker of the group."""

_KIND_WORDS = {  # of a rejected worker or group
    ReasonKind.NO_SUCH_DEVICE: "wrong device",
    ReasonKind.CONSTRAINT: "constraint not met",
    ReasonKind.TAINT: "taint not tolerated",
    ReasonKind.GROUP_SHAPE: "wrong group size",
    ReasonKind.UNHEALTHY: "unavailable",
    ReasonKind.COOLDOWN: "cooling down",
    ReasonKind.CHIPS: "chips in use",
    ReasonKind.GPUS: "too few free GPUs",
    ReasonKind.MEMORY: "too little free memory",
    ReasonKind.CPU: "too few free cores",
    ReasonKind.TIME_LEFT: "ends too soon",
    ReasonKind.STOPPING: "still stopping tasks",
    ReasonKind.BEHIND: "assigned to other tasks",
}

_RESOURCE_NOUNS = {
    ReasonKind.CHIPS: "chips",
    ReasonKind.GPUS: "GPUs",
    ReasonKind.MEMORY: "memory",
    ReasonKind.CPU: "cores",
}


def unit(shape: Shape | None) -> str:
    """Return the unit of placement: `worker`, `slice`, `rack group`."""
    if shape is None:
        return "worker"
    return "slice" if shape.group_by == constraints.TPU_NAME_ATTRIBUTE_KEY else f"{shape.group_by} group"


def unit_name(shape: Shape | None, *groups: Group) -> str:
    """Return `worker cpu-0`, `slices v4a, v4b`, `rack group 7`."""
    return f"{unit(shape)}{'s' if len(groups) > 1 else ''} {', '.join(str(group.key) for group in groups)}"


def format_amount(kind: ReasonKind, number: int) -> str:
    """Return `16 cores`, `64GiB of memory`, `4 GPUs`, `all chips`."""
    if kind is ReasonKind.CHIPS:
        return "all chips"
    if kind is ReasonKind.MEMORY:
        return f"{format_memory(number)} of memory"
    if kind is ReasonKind.GPUS:
        return count(number, "GPU")
    return f"{number / 1000:g} core{'' if number == 1000 else 's'}"


def rejection_words(kind: ReasonKind, details: str = "") -> str:
    """Return why a worker or group is rejected: `chips in use (used by train)`, `0 cores free, needs 1 core`."""
    if details and kind in (ReasonKind.GPUS, ReasonKind.MEMORY, ReasonKind.CPU):
        return details
    words = _KIND_WORDS.get(kind, str(kind))
    return f"{words} ({details})" if details else words


# No worker is suitable


def no_device_text(fleet: Fleet, device: Device | None) -> str:
    """Return the text for: no worker has the device."""
    if device is None or not (fleet.workers or fleet.may_get_device(device)):
        return "no worker accepts CPU tasks" if fleet.workers else "there are no workers"
    wanted = _device_name(device)
    variants = fleet.workers_by_value(constraints.DEVICE_VARIANT_ATTRIBUTE_KEY)
    kinds = fleet.workers_by_value(constraints.DEVICE_TYPE_ATTRIBUTE_KEY)
    named = reduce(or_, variants.values(), 0)
    offered = [*variants, *(kind for kind, workers in kinds.items() if workers & ~named)]
    similar = next((each for each in map(str, variants) if each.casefold() == wanted.casefold()), "")
    hint = f"; did you mean {similar!r}?" if similar else ""
    available = f" (available: {list_few(map(str, offered))}{hint})" if offered else ""
    if fleet.may_get_device(device):
        unknown = fleet.unprobed_count
        if unknown:
            not_probed = f"{count(unknown, 'worker')} not probed yet (iris doctor)"
            return f"no probed worker has {wanted}{available}; {not_probed}"
        if device.kind == "tpu":
            return f"no {'TPU' if device.variant == AUTO else wanted} slice exists{available}"
        return f"no worker has {wanted}{available}"
    return f"no worker or scale group has {wanted}{available}; will never run"


def _device_name(device: Device) -> str:
    return f"a {device.kind.upper()}" if device.variant == AUTO else device.variant


def too_few_equipped_text(shape: Shape, device: Device, *, other: bool) -> str:
    """Return the text for: no group has the device on enough workers."""
    where = "all its workers" if shape.whole else count(shape.size, "worker")
    return f"no {'other ' * other}{unit(shape)} has {_device_name(device)} on {where}"


def constraints_text(requirement: Requirement, fleet: Fleet, rejection: Rejection, *, other: bool) -> str:
    """Return the text for: no worker satisfies the constraints. It names a type mismatch if there is one."""
    failing = [each for each in requirement.required if rejection.rejected & ~fleet.workers_satisfying(each)]
    unsatisfied = [each for each in failing if not rejection.rejected & fleet.workers_satisfying(each)]
    names = list_few(format_constraint(each) for each in unsatisfied or failing)
    attributes = fleet.workers[first_of(rejection.rejected)].all_attributes
    clash = next(filter(None, (each.type_clash(attributes) for each in failing)), "")
    prefix = "" if unsatisfied or len(failing) == 1 else "all of "
    subject = "other " * other + unit(requirement.shape)
    device = requirement.job.resources.device
    others = fleet.all_workers & ~requirement.with_device
    if device is not None and any(others & fleet.workers_satisfying(each) for each in unsatisfied or failing):
        subject += f" with {_device_name(device)}"
    return f"no {subject} satisfies {prefix}{names}" + (f" ({clash})" if clash else "")


def taints_text(requirement: Requirement, fleet: Fleet, rejection: Rejection, *, other: bool) -> str:
    """Return the text for: all otherwise suitable workers have taints."""
    subject = "all other suitable workers are" if other else f"every suitable {unit(requirement.shape)} is"
    return f"{subject} tainted: {_list_taints(requirement, fleet, rejection.rejected)}"


def _list_taints(requirement: Requirement, fleet: Fleet, rejected: int) -> str:
    taints = (taint for taint, workers in fleet.taints.items() if workers & rejected)
    return list_few(taint for taint in taints if taint not in requirement.job.tolerations)


def too_few_groups_text(shape: Shape, suitable: int) -> str:
    """Return the text for: fewer groups are suitable than the gang needs."""
    return f"needs {count(shape.groups, unit(shape))}, only {suitable} suitable"


def several_regions_text(shape: Shape, variant: str, groups: int, regions: int, *, free: bool) -> str:
    """Return the text for: enough groups are suitable (with `free`: are free), but too few in each region."""
    kind = f"{variant} {unit(shape)}" if variant else unit(shape)
    free_or_suitable = "free" if free else "suitable"
    wanted = count(shape.groups, f"{free_or_suitable} {kind}")
    return f"no region has {wanted} ({groups} in {regions} regions); pass --spread to use several regions"


def several_variants_text(shape: Shape, variants: Mapping[str, int]) -> str:
    """Return the text for: enough groups are suitable, but too few of each device variant."""
    suitable = list_few(f"{count} of {variant}" for variant, count in variants.items()) or "none"
    return f"needs {count(shape.groups, unit(shape))} of one device type (suitable: {suitable})"


def wrong_shape_text(shape: Shape, fleet: Fleet, largest: Group | None, *, only_reason: bool) -> str:
    """Return the text for: no group has the gang's shape. `only_reason`: the shape alone rejects all groups."""
    if largest is None:
        return f"no suitable worker has the attribute {shape.group_by}"
    size = len(largest.members)
    group = ("" if only_reason else "suitable ") + f"{shape.group_by} group"
    if size < shape.size or not shape.whole:
        noun = ("" if only_reason else "suitable ") + unit(shape)
        return f"no {noun} has {shape.size} workers (largest: {largest.key} with {size})"
    members = [fleet.workers[position] for position in largest.members]
    numbers = [worker_number(worker) for worker in members]
    if numbers == list(range(size)):
        members_text = f"{size} of {vm_count(members[0]) or size} workers"
    else:
        listed = ("none" if number is None else str(number) for number in numbers[: 2 * shape.size])
        members_text = f"workers numbered {', '.join(listed)}"
    return f"no {group} is a whole slice of {count(shape.size, 'worker')} ({largest.key} has {members_text})"


def too_large_text(fleet: Fleet, device: Device | None, kind: ReasonKind, need: int, largest: int) -> str:
    """Return the text for: no worker is large enough, even when idle. Scale groups may add larger workers."""
    maximum = f"{largest / (1000 if kind is ReasonKind.CPU else 1):g}"
    if kind is ReasonKind.MEMORY:
        maximum = format_memory(largest)
    text = f"no worker has {format_amount(kind, need)} (largest: {maximum})"
    return text if fleet.may_get_device(device) else f"{text}; will never run"


# Suitable workers that are not available now


def unavailable_text(
    context: SchedulingContext, requirement: Requirement, rejection: Rejection, suitable: int
) -> str:
    """Return `both v4-32 slices are busy (train)`. `suitable`: the number of all suitable workers or groups."""
    kind, refused, rejected, _ = rejection
    if kind is ReasonKind.BEHIND:
        return f"waiting for {_scarce_resources(context, requirement, rejected)}"
    if kind in _PHRASES:
        plural, singular = _PHRASES[kind]
    else:
        less = "fewer" if kind is ReasonKind.GPUS else "less"
        shortage = f"{less} than {format_amount(kind, requirement.need[AMOUNT_KINDS.index(kind)])} free"
        plural, singular = f"have {shortage}", f"has {shortage}"
        # The end of tasks on a worker that is too small does not help.
        rejected &= context.workers_of_size(requirement.need)
    text = f"{_share(requirement, refused, suitable)} {singular if refused == 1 else plural}"
    detail = _detail(context, kind, rejected) if rejected else ""
    if requirement.shape is not None and kind in _OF_ONE_WORKER:
        detail = f"worker {detail}"
    if kind is ReasonKind.RESERVED:
        return f"{text} for {detail}"
    return f"{text} ({detail})" if detail else text


def _share(requirement: Requirement, refused: int, suitable: int) -> str:
    """Return the rejected part as a text: `the only worker`, `both v4-32 slices`, `3 of 4 suitable workers`.

    If the gang needs several groups, return `needs 2 slices, but 1 of 3 v4-32 slices`.
    """
    device = requirement.job.resources.device
    noun = "one-VM slice" if requirement.one_vm else unit(requirement.shape)
    if device is not None and device.variant != AUTO:
        noun = f"{device.variant} {noun}"
    if requirement.selected != requirement.with_device:
        noun = f"suitable {noun}"
    if suitable == 1:
        return f"the only {noun}"
    if refused == suitable:
        return f"both {noun}s" if suitable == 2 else f"all {suitable} {noun}s"
    needs = ""
    if requirement.shape is not None and requirement.shape.groups > 1:
        needs = f"needs {count(requirement.shape.groups, unit(requirement.shape))}, but "
    return f"{needs}{refused} of {suitable} {noun}s"


def _scarce_resources(context: SchedulingContext, requirement: Requirement, rejected: int) -> str:
    """Return the resource that jobs ahead have used up on these workers: `free cores`, `a free slice`."""
    if requirement.shape is not None:
        return f"a free {unit(requirement.shape)}"
    needs = zip(AMOUNT_KINDS, requirement.need, context.dimensions, strict=True)
    scarce = [_RESOURCE_NOUNS[kind] for kind, need, each in needs if rejected & ~each.workers_now[need]]
    return f"free {' and '.join(scarce)}" if scarce else "a free worker"


def jobs_on(context: SchedulingContext, rejected: int, kind: ReasonKind | None = None) -> Iterator[JobId]:
    """Yield the jobs with live attempts on these workers. `kind` CHIPS or GPUS: only jobs that hold chips or GPUs."""
    for position in positions_of(rejected):
        claims = context.fleet.workers[position].claims
        yield from sorted(attempt.task.job for attempt, claim in claims.items() if _holds(claim, kind))


def _holds(claim: Claim, kind: ReasonKind | None) -> bool:
    if kind is ReasonKind.CHIPS:
        return claim.chips
    return kind is not ReasonKind.GPUS or bool(claim.gpus)


def _detail(context: SchedulingContext, kind: ReasonKind, rejected: int) -> str:
    """Return the cause of a rejection as a short text: the state of the first worker, or the names of jobs."""
    fleet = context.fleet
    worker = fleet.workers[first_of(rejected)]
    match kind:
        case ReasonKind.UNHEALTHY:
            return f"{worker.id}: {state_text(worker)}"
        case ReasonKind.COOLDOWN:
            cause = f", {worker.reason}" if worker.reason else ""
            return f"{worker.id}: {format_duration(worker.cooldown_until - fleet.now)} left{cause}"
        case ReasonKind.TIME_LEFT:
            return f"{worker.id}: {format_duration(max(0.0, (worker.ends_at or 0.0) - fleet.now))} left"
        case ReasonKind.RESERVED:
            return list_few(str(context.reserved_by[position]) for position in positions_of(rejected))
        case ReasonKind.STOPPING:
            return list_few(fleet.stopping_jobs(positions_of(rejected)))
    names = list_few(jobs_on(context, rejected, kind))
    return f"used by {names}" if names and kind is not ReasonKind.CHIPS else names


def state_text(worker: Worker) -> str:
    """Return why a worker accepts no tasks, as a short text such as `draining`."""
    if worker.unschedulable:
        return worker.reason or "unusable"
    if worker.quarantined:
        return "quarantined"
    if worker.drain_reason == INCOMPLETE:
        return INCOMPLETE
    return "draining" if worker.draining else str(worker.condition)


def list_few(names: Iterable[str]) -> str:
    """Return a text with the first different names, at most three. No further names are taken from the iterator."""
    listed: dict[str, None] = {}
    for name in names:
        if len(listed) == _MAX_LISTED and name not in listed:
            return ", ".join(listed) + " and others"
        listed[name] = None
    return ", ".join(listed)


def shortage_text(context: SchedulingContext, requirement: Requirement, check: GroupCheck) -> str:
    """Return the shortage of a near miss: `2 cores free, needs 4 cores`, `region is us`, `used by train-7`."""
    fleet, kind = context.fleet, check.kind
    at = first_of(check.rejected)
    worker = fleet.workers[at]
    if kind is ReasonKind.CONSTRAINT:
        unmet = [each.key for each in requirement.required if not fleet.workers_satisfying(each) >> at & 1]
        attributes = worker.all_attributes
        found = {key: attributes.get(key) for key in unmet}
        return list_few(
            f"{key} is not set" if value is None else f"{key} is {value}" for key, value in found.items()
        )
    if kind is ReasonKind.TAINT:
        return _list_taints(requirement, fleet, 1 << at)
    if kind is ReasonKind.GROUP_SHAPE:
        shape, size = requirement.shape, len(check.group.members)
        if shape is None:
            return "a VM of a larger slice"
        return f"{count(size, 'worker')}, needs {shape.size}" if size != shape.size else "not a whole slice"
    if kind is ReasonKind.NO_SUCH_DEVICE and requirement.job.resources.device is not None:
        return f"{_device_name(requirement.job.resources.device)} is missing on {worker.id}"
    if kind in (ReasonKind.GPUS, ReasonKind.MEMORY, ReasonKind.CPU):
        number = AMOUNT_KINDS.index(kind)
        have = max(0, WorkerCapacity.of(worker).free[number])
        return f"{format_amount(kind, have)} free, needs {format_amount(kind, requirement.need[number])}"
    if kind is ReasonKind.STOPPING:
        names = list_few(fleet.stopping_jobs(positions_of(check.rejected)))
        return f"still stopping {names}" if names else "still stopping a task"
    detail = _detail(context, kind, check.rejected) if kind else ""
    return f"used by {detail}" if detail and kind is ReasonKind.CHIPS else detail


def hints(fleet: Fleet, requirement: Requirement) -> Iterator[str]:
    """Yield the number of workers whose device is unknown, and probable corrections of unsatisfied constraints."""
    if fleet.unprobed_count and (requirement.job.resources.device is None or requirement.with_device):
        yield f"{count(fleet.unprobed_count, 'worker')} not probed yet (iris doctor)"
    unsatisfied = [each for each in requirement.required if not fleet.workers_satisfying(each)]
    if unsatisfied:
        yield from typo_warnings(unsatisfied, [worker.all_attributes for worker in fleet.workers])
