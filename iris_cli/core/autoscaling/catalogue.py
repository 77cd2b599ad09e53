"""The offers of scale groups, the groups that could serve a DemandEntry, and the reason if no group does.

A group is represented by one worker that it could create; its rank is its place in the order of trial. So a set of
groups is a set of workers (an integer with a bit for each), and constraints mean exactly the same as in a scheduling
cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, ConstraintOp, Limits
from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.groups import GroupState, in_order_of_trial, phantom
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.constraints import Constraint, preemptible_constraint, region_constraint
from iris_cli.core.ids import clip
from iris_cli.core.model.slice import ScaleGroup
from iris_cli.core.resources import AUTO, DEVICE_KINDS
from iris_cli.core.scheduling.explain.wording import amount, few
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.placement import REGION, VARIANT, Location, Shape, locations
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sets import AMOUNT_KINDS, mask_of, positions_of
from iris_cli.core.text import nearest
from iris_cli.core.topology import lookup
from iris_cli.core.units import count, format_duration


class UnmetKind(StrEnum):
    """Kind of an unmet requirement, in the order of checks. The first requirement that no group meets is the reason."""

    INVALID = "invalid"
    NO_GROUPS = "no_groups"
    DEVICE = "device"
    SHAPE = "shape"
    REGION = "region"
    PREEMPTIBLE = "preemptible"
    CONSTRAINT = "constraint"
    TAINT = "taint"
    SIZE = "size"
    TIME_LEFT = "time_left"
    MAX_SLICES = "max_slices"
    BACK_OFF = "back_off"


class UnmetReason(Struct, frozen=True, kw_only=True):
    """One reason in words. The last two kinds are temporary; other kinds need a change of configuration or job."""

    kind: UnmetKind
    text: str

    def __str__(self) -> str:
        return self.text


class Criterion(NamedTuple):
    """One requirement of an entry, and the groups that meet it. `subject`: the attribute or taint concerned."""

    kind: UnmetKind
    groups: int
    subject: str = ""
    constraint: Constraint | None = None


class Catalogue:
    """Scale groups by their offers; a group is identified by its rank in the order of trial."""

    def __init__(self, groups: Iterable[GroupState | ScaleGroup]) -> None:
        self.states = in_order_of_trial(groups)
        workers = [
            phantom(state, f"~{rank:06d}", 0, state.vm_count) for rank, state in enumerate(self.states)
        ]
        self.fleet = Fleet(workers, 0.0, Limits(), ())
        self.all_groups = self.fleet.all_workers
        self.tiers = self._tiers()
        self._places: dict[bool, list[Location]] = {}
        self._shaped: dict[Shape, int] = {}
        self._large_enough: dict[Amounts, int] = {}

    def criteria(self, entry: DemandEntry) -> Iterator[Criterion]:
        """Yield the requirements of an entry in the order of checks."""
        device = entry.resources.device
        yield Criterion(UnmetKind.DEVICE, self.fleet.with_device(device))
        if entry.shape is not None:
            yield Criterion(UnmetKind.SHAPE, self._of_shape(entry.shape))
        elif entry.one_vm:
            yield Criterion(UnmetKind.SHAPE, self._of_one_vm)
        if entry.required_regions is not None:
            constraint = region_constraint(sorted(entry.required_regions))
            groups = self.fleet.satisfying(constraint)
            yield Criterion(UnmetKind.REGION, groups, keys.REGION_ATTRIBUTE_KEY, constraint)
        if entry.preemptible is not None:
            constraint = preemptible_constraint(entry.preemptible)
            groups = self.fleet.satisfying(constraint)
            yield Criterion(UnmetKind.PREEMPTIBLE, groups, keys.PREEMPTIBLE_ATTRIBUTE_KEY, constraint)
        for constraint in entry.constraints:
            if constraint.required:
                kind = _KINDS.get(constraint.key, UnmetKind.CONSTRAINT)
                about_numbers = constraint.key == keys.TPU_WORKER_ID_ATTRIBUTE_KEY
                groups = self._with_seats(entry) if about_numbers else self.fleet.satisfying(constraint)
                yield Criterion(kind, groups, constraint.key, constraint)
        yield Criterion(UnmetKind.TAINT, self.fleet.tolerating(entry.tolerations))
        yield Criterion(UnmetKind.SIZE, self._covering(Amounts.needed(entry.resources)))
        yield Criterion(UnmetKind.TIME_LEFT, self._lasting(entry.timeout))

    def serving(self, entry: DemandEntry) -> int:
        """Return the groups whose slices would serve an entry, even if they may create no slice now."""
        found = self.all_groups
        for criterion in self.criteria(entry):
            found &= criterion.groups
        return found

    def preferred(self, entry: DemandEntry) -> list[int]:
        """Return, for each preference of an entry, the groups that meet it."""
        return [self.fleet.satisfying(each) for each in entry.constraints if not each.required]

    def place(self, entry: DemandEntry, rank: int) -> Location:
        """Return the device variant, region and zone of a group's slices; no variant if the entry needs no device."""
        plain = entry.resources.device_type == "cpu"
        if plain not in self._places:
            self._places[plain] = locations(self.fleet, needs_no_device=plain)
        return self._places[plain][rank]

    def seats(self, entry: DemandEntry, rank: int) -> tuple[int, ...]:
        """Return the numbers of the VMs of a slice that may accept a task of an entry."""
        vms = range(self.vms(entry, rank))
        numbered = [
            each
            for each in entry.constraints
            if each.required and each.key == keys.TPU_WORKER_ID_ATTRIBUTE_KEY
        ]
        if not numbered:
            return tuple(vms)
        found = [{keys.TPU_WORKER_ID_ATTRIBUTE_KEY: AttributeValue(index)} for index in vms]
        return tuple(vm for vm in vms if all(each.matches(found[vm]) for each in numbered))

    def vms(self, entry: DemandEntry, rank: int) -> int:
        """Return the number of VMs of a group's slice; if unknown, the number that the entry needs."""
        return self.states[rank].vm_count or (entry.shape.size if entry.shape is not None else 1)

    def values(self, key: str, groups: int) -> list[str]:
        """Return the values of an attribute in these groups, each once, in the order of trial."""
        first = {
            (those & groups) & -(those & groups): str(value)
            for value, those in self.fleet.workers_by_value(key).items()
            if those & groups
        }
        return [first[rank] for rank in sorted(first)]

    @cached_property
    def _of_one_vm(self) -> int:
        return mask_of([rank for rank, state in enumerate(self.states) if state.vm_count in (None, 1)])

    def _of_shape(self, shape: Shape) -> int:
        found = self._shaped.get(shape)
        if found is None:
            ranks = [rank for rank in range(len(self.states)) if self._has_shape(rank, shape)]
            found = self._shaped[shape] = mask_of(ranks)
        return found

    def _has_shape(self, rank: int, shape: Shape) -> bool:
        """Return whether a gang can use slices of a group: as its groups, or (with other attributes) as one group."""
        vms = self.states[rank].vm_count
        if shape.group_by != keys.TPU_NAME_ATTRIBUTE_KEY:  # its slices share the declared attributes
            there = shape.group_by in self.fleet.workers[rank].attributes
            return there and not shape.whole and shape.groups == 1
        return vms is None or (vms == shape.size if shape.whole else vms >= shape.size)

    def _with_seats(self, entry: DemandEntry) -> int:
        """Return the groups whose slices have enough VMs with worker numbers that the entry allows."""
        shape = entry.shape
        least = shape.size if shape is not None and shape.group_by == keys.TPU_NAME_ATTRIBUTE_KEY else 1
        return mask_of([rank for rank in range(len(self.states)) if len(self.seats(entry, rank)) >= least])

    def _covering(self, need: Amounts) -> int:
        found = self._large_enough.get(need)
        if found is None:
            ranks = [rank for rank, state in enumerate(self.states) if state.vm_size.covers(need)]
            found = self._large_enough[need] = mask_of(ranks)
        return found

    def _lasting(self, seconds: float) -> int:
        limits = [state.group.template.slurm.time for state in self.states]
        return mask_of([rank for rank, limit in enumerate(limits) if not limit or limit >= seconds])

    def _tiers(self) -> list[int]:
        """Return the groups by equal priority, the lowest first."""
        found: dict[int, list[int]] = {}
        for rank, state in enumerate(self.states):
            found.setdefault(state.group.priority, []).append(rank)
        return [mask_of(ranks) for ranks in found.values()]


_KINDS = {keys.REGION_ATTRIBUTE_KEY: UnmetKind.REGION, keys.PREEMPTIBLE_ATTRIBUTE_KEY: UnmetKind.PREEMPTIBLE}


_FEW = 3
_WANTED = (ConstraintOp.EQ, ConstraintOp.IN)


def why_nobody_serves(catalogue: Catalogue, entry: DemandEntry) -> UnmetReason:
    """Return the first requirement that no remaining group meets."""
    if not catalogue.states:
        return UnmetReason(kind=UnmetKind.NO_GROUPS, text="there are no scale groups")
    left = catalogue.all_groups
    for criterion in catalogue.criteria(entry):
        if not left & criterion.groups:
            words = _words(catalogue, entry, criterion, left)
            return UnmetReason(kind=criterion.kind, text=f"{criterion.subject or criterion.kind}: {words}")
        left &= criterion.groups
    raise AssertionError(f"a group serves {entry.key}")


def why_no_region(catalogue: Catalogue, entry: DemandEntry, left: Mapping[int, int]) -> UnmetReason | None:
    """Return the reason if a gang fits only in several regions, or None. `left`: slices that each group may create."""
    if entry.shape is None or entry.shape.groups == 1 or entry.spread:
        return None
    found: dict[Location, dict[Location, int]] = {}  # number of possible slices, by variant and by region
    there = [(catalogue.place(entry, rank), slices) for rank, slices in left.items()]
    for place, slices in (*((site.place, site.slices) for site in entry.idle), *there):
        regions = found.setdefault(place[:VARIANT], {})
        regions[place[:REGION]] = regions.get(place[:REGION], 0) + slices
    wanted = entry.shape.groups
    for (variant,), regions in found.items():
        if sum(regions.values()) >= wanted:
            of = f" of {variant}" if variant is not None else ""
            each = few(f"{region or 'no region'}: {slices}" for (_, region), slices in regions.items())
            text = (
                f"no region has room for {count(wanted, 'slice')}{of} ({each}); pass --spread to use several"
            )
            return UnmetReason(kind=UnmetKind.REGION, text=f"{UnmetKind.REGION}: {text}")
    return None


def capacity_reason(entry: DemandEntry, left: Sequence[tuple[GroupState, int]]) -> UnmetReason:
    """Return the reason if the serving groups can't create enough slices now. `left`: groups and remaining slices."""
    kind = UnmetKind.BACK_OFF if any(each.backing_off for each, _ in left) else UnmetKind.MAX_SLICES
    return UnmetReason(kind=kind, text=f"{kind}: {few(_why_not_now(entry, *each) for each in left)}")


def _why_not_now(entry: DemandEntry, state: GroupState, left: int) -> str:
    if state.backing_off:
        return f"{state.name} is backing off ({state.backing_off})"
    if state.vm_count is None and state.slices:
        return f"{state.name} waits for its first slice (VM count unknown)"
    most = state.group.max_slices
    if entry.slices > most:
        return f"{state.name} allows {count(most, 'slice')}, not {entry.slices}"
    if left == 0:
        return f"{state.name} is at its limit of {count(most, 'slice')}"
    return f"{state.name} allows {count(left, 'more slice')}, not {entry.slices}"


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
        case UnmetKind.TIME_LEFT:
            longest = max(catalogue.states[rank].group.template.slurm.time for rank in positions_of(left))
            return (
                f"needs {format_duration(entry.timeout)}, the longest slice lasts {format_duration(longest)}"
            )
    return _constraint_words(catalogue, criterion, left)


def _device_words(catalogue: Catalogue, entry: DemandEntry) -> str:
    device = entry.resources.device
    made = catalogue.values(keys.DEVICE_VARIANT_ATTRIBUTE_KEY, catalogue.all_groups)
    if device is None or device.variant == AUTO:
        return f"needs a {device.kind if device else 'cpu'}, groups have {few(made)}"
    return f"needs {device.variant}, groups have {few(made)}{_meant([device.variant], made)}"


def _shape_words(catalogue: Catalogue, entry: DemandEntry, left: int) -> str:
    states = [catalogue.states[rank] for rank in positions_of(left)]
    made = dict.fromkeys(state.vm_count for state in states)
    sizes = few(count(vms, "VM") for vms in made if vms is not None)
    wanted = count(entry.shape.size if entry.shape is not None else 1, "VM")
    if entry.shape is None or entry.shape.whole:
        return f"needs slices of {wanted}, groups have slices of {sizes}"
    return f"needs {wanted} of one {entry.shape.group_by}, groups have slices of {sizes}"


def _taint_words(catalogue: Catalogue, entry: DemandEntry, left: int) -> str:
    taints = (
        key.removeprefix(keys.TAINT_KEY_PREFIX)
        for rank in positions_of(left)
        for key in catalogue.fleet.workers[rank].attributes
        if key.startswith(keys.TAINT_KEY_PREFIX)
        and key.removeprefix(keys.TAINT_KEY_PREFIX) not in entry.tolerations
    )
    return f"does not tolerate {few(taints)} of the suitable groups"


def _size_words(catalogue: Catalogue, entry: DemandEntry, left: int) -> str:
    need = Amounts.needed(entry.resources)
    sizes = [catalogue.states[rank].vm_size for rank in positions_of(left)]
    for number, kind in enumerate(AMOUNT_KINDS):
        most = max(size[number] for size in sizes)
        if need[number] > most and kind is not ReasonKind.CHIPS:
            return f"needs {amount(kind, need[number])}, the largest VM has {amount(kind, most)}"
    wanted = " and ".join(amount(AMOUNT_KINDS[number], need[number]) for number in (0, 1))
    return f"needs {wanted}, no VM has both"


def _constraint_words(catalogue: Catalogue, criterion: Criterion, left: int) -> str:
    constraint, key = criterion.constraint, criterion.subject
    assert constraint is not None
    have = catalogue.values(key, left)
    there = f"groups have {few(have)}" if have else "no group has it"
    if left != catalogue.all_groups:
        names = few(catalogue.states[rank].name for rank in positions_of(left))
        there = f"the suitable groups ({names}) have {few(have) or 'none'}"
    if constraint.op not in _WANTED:
        return f"needs {clip(format_constraint(constraint))}, {there}"
    wanted = [str(each) for each in constraint.operands]
    known = catalogue.values(key, catalogue.all_groups)
    return f"needs {' or '.join(clip(each) for each in wanted[:_FEW])}, {there}{_meant(wanted, known)}"


def _meant(wanted: Iterable[str], known: Sequence[str]) -> str:
    """Return `; did you mean x?` for the first unknown word, or ''. Values with the same start are tried first."""
    for word in wanted:
        if word in known or word in DEVICE_KINDS or lookup(word) is not None:
            continue
        alike = [each for each in known if each[:2].casefold() == word[:2].casefold()]
        meant = nearest(word, alike) or nearest(word, known)
        if meant is not None:
            return f"; did you mean {meant}?"
    return ""
