"""Who is to blame that an entry gets no slice, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from iris_cli.core import Amounts, ConstraintOp
from iris_cli.core.attributes import DEVICE_VARIANT_ATTRIBUTE_KEY, TAINT_KEY_PREFIX
from iris_cli.core.autoscaling.catalogue import Catalogue, Criterion, UnmetKind, UnmetReason
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.ids import clip
from iris_cli.core.resources import AUTO, DEVICE_KINDS
from iris_cli.core.scheduling.capacity import AMOUNT_KINDS, positions_of
from iris_cli.core.scheduling.explain.wording import amount, few
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sites import REGION, VARIANT, Place
from iris_cli.core.text import nearest
from iris_cli.core.topology import lookup
from iris_cli.core.units import count

_FEW = 3
_WANTED = (ConstraintOp.EQ, ConstraintOp.IN)


def why_nobody_serves(catalogue: Catalogue, entry: DemandEntry) -> UnmetReason:
    """The first thing that none of the groups has that have all before it."""
    if not catalogue.states:
        return UnmetReason(kind=UnmetKind.NO_GROUPS, text="there are no scale groups")
    left = catalogue.everyone
    for criterion in catalogue.criteria(entry):
        if not left & criterion.groups:
            words = _words(catalogue, entry, criterion, left)
            return UnmetReason(kind=criterion.kind, text=f"{criterion.subject or criterion.kind}: {words}")
        left &= criterion.groups
    raise AssertionError(f"somebody serves {entry.key}")


def why_no_region(catalogue: Catalogue, entry: DemandEntry, left: Mapping[int, int]) -> UnmetReason | None:
    """Several regions together could hold a gang, and none alone; `left`: how many slices each group may still make."""
    if entry.shape is None or entry.shape.groups == 1 or entry.spread:
        return None
    found: dict[Place, dict[Place, int]] = {}  # by variant, then by region: how many slices could be there
    there = [(catalogue.place(entry, rank), slices) for rank, slices in left.items()]
    for place, slices in (*((site.place, site.slices) for site in entry.idle), *there):
        regions = found.setdefault(place[:VARIANT], {})
        regions[place[:REGION]] = regions.get(place[:REGION], 0) + slices
    wanted = entry.shape.groups
    for (variant,), regions in found.items():
        if sum(regions.values()) >= wanted:
            of = f" of {variant}" if variant is not None else ""
            each = few(f"{region or 'no region'}: {slices}" for (_, region), slices in regions.items())
            text = f"no region can hold {count(wanted, 'slice')}{of} ({each}); pass --spread to use several"
            return UnmetReason(kind=UnmetKind.REGION, text=f"{UnmetKind.REGION}: {text}")
    return None


def capacity_reason(entry: DemandEntry, left: Sequence[tuple[GroupState, int]]) -> UnmetReason:
    """Groups would serve, and none of them may make as many slices now: those groups, and how many each still may."""
    kind = UnmetKind.BACK_OFF if any(each.backing_off for each, _ in left) else UnmetKind.MAX_SLICES
    return UnmetReason(kind=kind, text=f"{kind}: {few(_why_not_now(entry, *each) for each in left)}")


def _why_not_now(entry: DemandEntry, state: GroupState, left: int) -> str:
    if state.backing_off:
        return f"{state.name} backs off ({state.backing_off})"
    if state.vm_count is None and state.slices:
        return f"{state.name} waits for its first slice, to see how many VMs that has"
    most = state.group.max_slices
    if entry.slices > most:
        return f"{state.name} has {count(most, 'slice')} at most, not {entry.slices}"
    if left == 0:
        return f"{state.name} has all of its {count(most, 'slice')}"
    return f"{state.name} may make {count(left, 'slice')} more, not {entry.slices}"


def _words(catalogue: Catalogue, entry: DemandEntry, criterion: Criterion, left: int) -> str:
    match criterion.kind:
        case UnmetKind.DEVICE:
            return _device_words(catalogue, entry)
        case UnmetKind.SHAPE:
            return _shape_words(catalogue, entry, left)
        case UnmetKind.TAINT:
            return _taint_words(catalogue, entry, left)
        case UnmetKind.SIZE:
            return _size_words(catalogue, entry, left)
    return _constraint_words(catalogue, criterion, left)


def _device_words(catalogue: Catalogue, entry: DemandEntry) -> str:
    device = entry.resources.device
    made = catalogue.values(DEVICE_VARIANT_ATTRIBUTE_KEY, catalogue.everyone)
    if device is None or device.variant == AUTO:
        return f"wants a {device.kind if device else 'cpu'}, groups make {few(made)}"
    return f"wants {device.variant}, groups make {few(made)}{_meant([device.variant], made)}"


def _shape_words(catalogue: Catalogue, entry: DemandEntry, left: int) -> str:
    states = [catalogue.states[rank] for rank in positions_of(left)]
    made = dict.fromkeys(state.vm_count for state in states)
    sizes = few(count(vms, "VM") for vms in made if vms is not None)
    wanted = count(entry.shape.size if entry.shape is not None else 1, "VM")
    if entry.shape is None or entry.shape.whole:
        return f"wants slices of {wanted}, groups make slices of {sizes}"
    return f"wants {wanted} of one {entry.shape.group_by}, groups make slices of {sizes}"


def _taint_words(catalogue: Catalogue, entry: DemandEntry, left: int) -> str:
    taints = (
        key.removeprefix(TAINT_KEY_PREFIX)
        for rank in positions_of(left)
        for key in catalogue.fleet.workers[rank].attributes
        if key.startswith(TAINT_KEY_PREFIX) and key.removeprefix(TAINT_KEY_PREFIX) not in entry.tolerations
    )
    return f"does not tolerate {few(taints)}, which all groups have that serve otherwise"


def _size_words(catalogue: Catalogue, entry: DemandEntry, left: int) -> str:
    need = Amounts.needed(entry.resources)
    sizes = [catalogue.states[rank].vm_size for rank in positions_of(left)]
    for number, kind in enumerate(AMOUNT_KINDS):
        most = max(size[number] for size in sizes)
        if need[number] > most and kind is not ReasonKind.CHIPS:
            return f"wants {amount(kind, need[number])}, the largest VM has {amount(kind, most)}"
    wanted = " and ".join(amount(AMOUNT_KINDS[number], need[number]) for number in (0, 1))
    return f"wants {wanted}, no VM has both"


def _constraint_words(catalogue: Catalogue, criterion: Criterion, left: int) -> str:
    constraint, key = criterion.constraint, criterion.subject
    assert constraint is not None
    have = catalogue.values(key, left)
    there = f"groups have {few(have)}" if have else "no group has it"
    if left != catalogue.everyone:
        names = few(catalogue.states[rank].name for rank in positions_of(left))
        there = (
            f"of those that serve otherwise ({names}) {'all have ' + few(have) if len(have) == 1 else there}"
        )
    if constraint.op not in _WANTED:
        return f"wants {clip(format_constraint(constraint))}, {there}"
    wanted = [str(each) for each in constraint.operands]
    known = catalogue.values(key, catalogue.everyone)
    return f"wants {' or '.join(clip(each) for each in wanted[:_FEW])}, {there}{_meant(wanted, known)}"


def _meant(wanted: Iterable[str], known: Sequence[str]) -> str:
    """`; did you mean x?` of the first word that is no value anywhere; values that begin alike are tried first."""
    for word in wanted:
        if word in known or word in DEVICE_KINDS or lookup(word) is not None:
            continue
        alike = [each for each in known if each[:2].casefold() == word[:2].casefold()]
        meant = nearest(word, alike) or nearest(word, known)
        if meant is not None:
            return f"; did you mean {meant}?"
    return ""
