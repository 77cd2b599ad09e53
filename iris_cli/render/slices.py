"""Print the plan of the autoscaler, and the result of a pass. A pass is one run of the autoscaler."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import Constraint, count, format_cores, format_memory
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.scaling import ScalingPlan
from iris_cli.core.lifecycle.slices import OwnerConflict
from iris_cli.ops.autoscale import Autoscaled
from iris_cli.ops.views.scale_status import demand_outcomes
from iris_cli.ops.views.scaling_rows import ScaleGroupRow, Scaling, UnmetRow
from iris_cli.render.console import Output


class Demand(Struct, frozen=True, kw_only=True):
    """Slices that a pending task or gang needs. `id`: of the task, or of the gang's job.

    `invalid_reason`: why no scale group can provide the slices; otherwise ''. `preemptible` and `required_regions` are
    null if the job has no constraint on them.
    """

    id: str
    slices: int
    constraints: Sequence[Constraint]
    preemptible: bool | None
    required_regions: Sequence[str] | None
    invalid_reason: str


class SliceToCreate(Struct, frozen=True):
    """A slice to be created, and its scale group."""

    slice: str
    group: str


class SliceToDelete(Struct, frozen=True):
    """A slice to be deleted, and why."""

    slice: str
    reason: str


class ScalingDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris autoscale --dry-run`.

    `routed`: for each scale group, the tasks and gangs that get its slices. `later`: for each scale group, the number
    of slices that the rate limit postpones.
    """

    demand: Sequence[Demand]
    routed: Mapping[str, Sequence[str]]
    create: Sequence[SliceToCreate]
    delete: Sequence[SliceToDelete]
    later: Mapping[str, int]
    groups: Sequence[ScaleGroupRow]
    unmet: Sequence[UnmetRow]


class PassDocument(Struct, frozen=True):
    """The result of one pass of `iris autoscale`: the plan, and the requests made to providers."""

    FLATTENED: ClassVar = ("plan",)
    plan: ScalingDocument
    created: Sequence[str]
    deleted: Sequence[str]
    problems: Sequence[str]


class AdoptedDocument(Struct, frozen=True):
    """The result of `iris autoscale --adopt`."""

    adopted: bool
    to_be_deleted: Sequence[str]


def show_plan(output: Output, plan: ScalingPlan, scaling: Scaling) -> None:
    if output.as_json:
        output.document(_document(plan, scaling))
        return
    if output.quiet:
        for order in plan.create:
            output.line(f"create {order.slice}")
        for removal in plan.delete:
            output.line(f"delete {removal.slice}")
        return
    for line in _lines(plan, scaling):
        output.line(line)


def _lines(plan: ScalingPlan, scaling: Scaling) -> Iterator[str]:
    if not plan.demand:
        yield "demand: none"
    outcomes = demand_outcomes(plan)
    for entry in plan.demand:
        yield f"{entry.key} ({_needs(entry)}) is {outcomes[entry.task_ids[0]]}"
    for order in plan.create:
        yield f"create {order.slice} in scale group {order.group.name}"
    for name, number in plan.later.items():
        yield f"postponed {count(number, 'slice')} of scale group {name}: rate limit"
    for removal in plan.delete:
        yield f"delete {removal.slice}: {removal.reason}"
    for group in scaling.groups:
        yield from group.by_hand
        if group.backing_off:
            yield f"scale group {group.name} is backing off: {group.backing_off}"


def _needs(entry: DemandEntry) -> str:
    device = entry.resources.device
    if entry.shape is not None:
        cpu = entry.resources.cpu
        what = device.variant if device is not None else f"{format_cores(cpu)} each"
        if entry.shape.whole:
            return f"{count(entry.slices, 'slice')} of {what}"
        return f"{count(entry.shape.size, 'host')}, {what}"
    if device is not None:
        return str(device)
    return f"{format_cores(entry.resources.cpu)}, {format_memory(entry.resources.memory)} of memory"


def _document(plan: ScalingPlan, scaling: Scaling) -> ScalingDocument:
    return ScalingDocument(
        demand=list(map(_demand, plan.demand)),
        routed={name: [str(entry.key) for entry in some] for name, some in plan.routing.routed.items()},
        create=[SliceToCreate(order.slice, order.group.name) for order in plan.create],
        delete=[SliceToDelete(each.slice, each.reason) for each in plan.delete],
        later=plan.later,
        groups=scaling.groups,
        unmet=scaling.unmet,
    )


def _demand(entry: DemandEntry) -> Demand:
    regions = entry.required_regions
    return Demand(
        id=str(entry.key),
        slices=entry.slices,
        constraints=entry.constraints,
        preemptible=entry.preemptible,
        required_regions=None if regions is None else sorted(regions),
        invalid_reason=entry.invalid_reason,
    )


def show_pass(output: Output, result: Autoscaled, scaling: Scaling) -> None:
    """Print the actions of a pass. Without actions print nothing, because cron sends all output by mail."""
    if output.as_json:
        output.document(pass_document(result, scaling))
        return
    if result.conflict is not None:
        output.warning(f"no slices are created or deleted: {result.conflict}")
        output.message(f"hint: {owner_hint(result.conflict)}")
        return
    for name in result.created:
        output.done(f"requested slice {name}")
    for name, reason in result.deleted.items():
        output.done(f"deleting slice {name}" + (f": {reason}" if reason else ""))
    for group in scaling.groups:
        for line in group.by_hand:
            output.done(line)
    for each in scaling.unmet:
        output.done(f"no scale group serves {each.id}: {each.text}")
    for problem in result.problems:
        output.warning(problem)


def pass_document(result: Autoscaled, scaling: Scaling) -> PassDocument:
    problems = [*result.problems, *([str(result.conflict)] if result.conflict is not None else [])]
    return PassDocument(_document(result.plan, scaling), result.created, list(result.deleted), problems)


def owner_hint(conflict: OwnerConflict) -> str:
    if conflict.elsewhere:
        return "use that state directory; if it is gone for good: iris autoscale --adopt"
    return "restore the newest log; or delete the unknown slices and their tasks: iris autoscale --adopt"


def adopt_question(conflict: OwnerConflict) -> str:
    """Return the question that confirms `--adopt`, with its consequences."""
    names = ", ".join(conflict.unknown)
    noun = "slices" if len(conflict.unknown) > 1 else "slice"
    deletion = f"delete {noun} {names} (unknown to this event log) with all tasks?"
    if not conflict.elsewhere:
        return f"D{deletion[1:]}"
    move = f"Move the management of slices from {conflict.elsewhere} to this state directory"
    return f"{move}, and {deletion}" if names else f"{move}?"


def show_adopted(output: Output, conflict: OwnerConflict | None, *, done: bool) -> None:
    unknown = list(conflict.unknown) if conflict is not None else []
    if output.as_json:
        output.document(AdoptedDocument(done, unknown if done else []))
    elif conflict is None:
        output.done("this state directory already manages the slices")
    elif done:
        output.done("this state directory now manages the slices")
        for name in unknown:
            output.done(f"the next iris autoscale deletes {name}")
