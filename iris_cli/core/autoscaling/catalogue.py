"""Find the scale groups that could serve a DemandEntry, or the reason why no group could.

Each group is represented by one worker of a slice that it could create. Constraints are matched against this worker, as
in a scheduling cycle. The index of a group is its position in the order in which groups are tried. A set of groups is
an integer with a bit for each index.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from math import inf
from typing import NamedTuple

from msgspec import Struct

from iris_cli.core import Amounts, AttributeValue, Limits, ScaleGroup, clip, format_indexes, lookup, nearest
from iris_cli.core import attributes as keys
from iris_cli.core.autoscaling.demand import DemandEntry
from iris_cli.core.autoscaling.groups import GroupState, future_worker, sort_groups
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.constraints import Constraint, ConstraintOp, preemptible_constraint, region_constraint
from iris_cli.core.decorators import cached_by_argument
from iris_cli.core.model.slice import SliceTemplate
from iris_cli.core.resources import AUTO, DEVICE_KINDS
from iris_cli.core.scheduling.explain.wording import format_amount, list_few
from iris_cli.core.scheduling.fleet import Fleet
from iris_cli.core.scheduling.placement import REGION, VARIANT, Location, Shape, worker_locations
from iris_cli.core.scheduling.reasons import ReasonKind
from iris_cli.core.scheduling.sets import AMOUNT_KINDS, mask_of, positions_of
from iris_cli.core.units import count, format_duration

# The reserve for the start of a slice with a time limit: this share of the limit, at most this many seconds.
_START_SHARE, _MAX_START_TIME = 0.1, 300.0


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
    """The reason why no group creates a slice. MAX_SLICES and BACK_OFF are temporary."""

    kind: UnmetKind
    text: str

    def __str__(self) -> str:
        return self.text


class Criterion(NamedTuple):
    """One requirement of an entry, and the groups that meet it."""

    kind: UnmetKind
    groups: int
    constraint: Constraint | None = None


def usable_time(template: SliceTemplate) -> float:
    """Return how long tasks can use a new slice, in seconds; infinity without a time limit.

    The time limit includes the time until all hosts have passed their probes and are set up. Without this reserve, new
    slices would be created without end for a task whose time limit equals the time limit of the slice.
    """
    time = template.slurm.time
    return time - min(_MAX_START_TIME, time * _START_SHARE) if time else inf


class Catalogue:
    """The scale groups, to find groups that meet requirements. `tiers`: sets of groups of equal priority, in order."""

    def __init__(self, groups: Iterable[GroupState | ScaleGroup]) -> None:
        self.states = sort_groups(groups)
        named = ((f"~{index:06d}", state) for index, state in enumerate(self.states))
        workers = [future_worker(state, name, 0, state.vm_count) for name, state in named]
        self.fleet = Fleet(workers, 0.0, Limits(), ())
        self.all_groups = self.fleet.all_workers
        by_priority = groupby(range(len(self.states)), lambda index: self.states[index].group.priority)
        self.tiers = [mask_of(list(indexes)) for _, indexes in by_priority]

    def criteria(self, entry: DemandEntry) -> Iterator[Criterion]:
        """Yield the requirements of an entry in the order of checks."""
        yield Criterion(UnmetKind.DEVICE, self.fleet.workers_with_device(entry.resources.device))
        if entry.shape is not None:
            yield Criterion(UnmetKind.SHAPE, self._groups_with_shape(entry.shape))
        elif entry.one_vm:
            yield Criterion(UnmetKind.SHAPE, self._groups_where(lambda state: state.vm_count in (None, 1)))
        if entry.required_regions is not None:
            constraint = region_constraint(sorted(entry.required_regions))
            yield Criterion(UnmetKind.REGION, self.fleet.workers_satisfying(constraint), constraint)
        if entry.preemptible is not None:
            constraint = preemptible_constraint(entry.preemptible)
            yield Criterion(UnmetKind.PREEMPTIBLE, self.fleet.workers_satisfying(constraint), constraint)
        for constraint in entry.constraints:
            if constraint.required:
                kind = _KINDS.get(constraint.key, UnmetKind.CONSTRAINT)
                if constraint.key == keys.TPU_WORKER_ID_ATTRIBUTE_KEY:
                    groups = self._groups_with_suitable_vms(entry)
                else:
                    groups = self.fleet.workers_satisfying(constraint)
                yield Criterion(kind, groups, constraint)
        yield Criterion(UnmetKind.TAINT, self.fleet.workers_tolerated_by(entry.tolerations))
        need = Amounts.needed(entry.resources)
        yield Criterion(UnmetKind.SIZE, self._groups_where(lambda state: state.vm_size.covers(need)))
        lasting = self._groups_where(lambda state: usable_time(state.group.template) >= entry.timeout)
        yield Criterion(UnmetKind.TIME_LEFT, lasting)

    def groups_serving(self, entry: DemandEntry) -> int:
        """Return the groups whose slices suit an entry, even if they may create no slice now."""
        found = self.all_groups
        for criterion in self.criteria(entry):
            found &= criterion.groups
        return found

    def location(self, entry: DemandEntry, index: int) -> Location:
        """Return the device variant, region and zone of a group's slices; no variant if the entry needs no device."""
        return self._locations(entry.resources.device_type == "cpu")[index]

    @cached_by_argument
    def _locations(self, needs_no_device: bool) -> list[Location]:
        return worker_locations(self.fleet, needs_no_device=needs_no_device)

    def suitable_vms(self, entry: DemandEntry, index: int) -> tuple[int, ...]:
        """Return the numbers of the VMs of a slice that suit the entry's constraints on worker numbers."""
        vms = tuple(range(self.vms(entry, index)))
        for each in entry.constraints:
            if each.required and each.key == keys.TPU_WORKER_ID_ATTRIBUTE_KEY:
                vms = tuple(vm for vm in vms if each.matches({each.key: AttributeValue(vm)}))
        return vms

    def vms(self, entry: DemandEntry, index: int) -> int:
        """Return the number of VMs of a group's slice; if unknown, the number that the entry needs."""
        return self.states[index].vm_count or (entry.shape.size if entry.shape is not None else 1)

    def values(self, key: str, groups: int) -> list[str]:
        """Return the values of an attribute in these groups, each once, in the order of their groups."""
        by_first_group = {
            (found & groups) & -(found & groups): str(value)
            for value, found in self.fleet.workers_by_value(key).items()
            if found & groups
        }
        return [by_first_group[group] for group in sorted(by_first_group)]

    @cached_by_argument
    def _groups_with_shape(self, shape: Shape) -> int:
        return mask_of([index for index in range(len(self.states)) if self._suits_shape(index, shape)])

    def _suits_shape(self, index: int, shape: Shape) -> bool:
        """Return whether slices of a scale group can form the groups of a gang: one group each, or one together."""
        vms = self.states[index].vm_count
        if shape.group_by != keys.TPU_NAME_ATTRIBUTE_KEY:
            # All slices of the scale group have its declared attributes, so they form one group.
            is_declared = shape.group_by in self.fleet.workers[index].attributes
            return is_declared and not shape.whole and shape.groups == 1
        return vms is None or (vms == shape.size if shape.whole else vms >= shape.size)

    def _groups_with_suitable_vms(self, entry: DemandEntry) -> int:
        """Return the groups whose slices have enough VMs with worker numbers that the entry allows."""
        shape = entry.shape
        least = shape.size if shape is not None and shape.group_by == keys.TPU_NAME_ATTRIBUTE_KEY else 1
        return mask_of([at for at in range(len(self.states)) if len(self.suitable_vms(entry, at)) >= least])

    def _groups_where(self, is_met: Callable[[GroupState], bool]) -> int:
        return mask_of([index for index, state in enumerate(self.states) if is_met(state)])


_KINDS = {keys.REGION_ATTRIBUTE_KEY: UnmetKind.REGION, keys.PREEMPTIBLE_ATTRIBUTE_KEY: UnmetKind.PREEMPTIBLE}


_MAX_LISTED = 3
_OPS_WITH_SUGGESTIONS = (ConstraintOp.EQ, ConstraintOp.IN)
_PLACEHOLDER_KEYS = (keys.TPU_NAME_ATTRIBUTE_KEY, keys.WORKER_ID_ATTRIBUTE_KEY)  # of workers of a catalogue


def why_unmet(catalogue: Catalogue, entry: DemandEntry, creatable: Mapping[int, int]) -> UnmetReason:
    """Return why no group creates a slice. `creatable`: slices that each suitable group may still create, by index."""
    if not creatable:
        return _why_no_group_is_suitable(catalogue, entry)
    states = [(catalogue.states[index], slices) for index, slices in creatable.items()]
    return _why_no_region(catalogue, entry, creatable) or _capacity_reason(entry, states)


def _why_no_group_is_suitable(catalogue: Catalogue, entry: DemandEntry) -> UnmetReason:
    """Return the first requirement that no group meets together with all earlier requirements."""
    if not catalogue.states:
        return UnmetReason(kind=UnmetKind.NO_GROUPS, text="there are no scale groups")
    remaining = catalogue.all_groups
    for criterion in catalogue.criteria(entry):
        if not remaining & criterion.groups:
            text = _criterion_text(catalogue, entry, criterion, remaining)
            return UnmetReason(kind=criterion.kind, text=text)
        remaining &= criterion.groups
    raise AssertionError(f"a group serves {entry.key}")


def _why_no_region(
    catalogue: Catalogue, entry: DemandEntry, creatable: Mapping[int, int]
) -> UnmetReason | None:
    """Return the reason if a gang would fit only on slices of several regions, otherwise None."""
    if entry.shape is None or entry.shape.groups == 1 or entry.spread:
        return None
    found: dict[Location, dict[Location, int]] = {}  # number of possible slices, by variant and by region
    new_slices = [(catalogue.location(entry, index), slices) for index, slices in creatable.items()]
    for location, slices in (*((site.location, site.groups) for site in entry.idle), *new_slices):
        regions = found.setdefault(location[:VARIANT], {})
        regions[location[:REGION]] = regions.get(location[:REGION], 0) + slices
    wanted = entry.shape.groups
    for (variant,), regions in found.items():
        if sum(regions.values()) >= wanted:
            of_variant = f" of {variant}" if variant is not None else ""
            counts = list_few(f"{region or 'no region'}: {slices}" for (_, region), slices in regions.items())
            room = f"no region has room for {count(wanted, 'slice')}{of_variant} ({counts})"
            return UnmetReason(kind=UnmetKind.REGION, text=f"{room}; pass --spread to use several regions")
    return None


def _capacity_reason(entry: DemandEntry, creatable: Sequence[tuple[GroupState, int]]) -> UnmetReason:
    """Return the reason why these groups can't create enough slices now."""
    kind = UnmetKind.BACK_OFF if any(each.backing_off for each, _ in creatable) else UnmetKind.MAX_SLICES
    needs = f"needs {count(entry.slices, 'slice')}, but "
    if entry.shape is not None and any(entry.slices <= slices for _, slices in creatable):
        needs = f"needs {count(entry.shape.size, 'VM')} together, but "  # several slices for one group
    return UnmetReason(kind=kind, text=needs + list_few(_why_not_now(entry, *each) for each in creatable))


def _why_not_now(entry: DemandEntry, state: GroupState, creatable: int) -> str:
    if state.backing_off:
        return f"scale group {state.name} is backing off ({state.backing_off})"
    if state.vm_count is None and state.slices:
        return f"scale group {state.name} waits for its first slice (VM count unknown)"
    limit = state.group.max_slices
    if entry.slices > limit:
        return f"scale group {state.name} allows {limit} (max_slices)"
    if creatable == 0:
        return f"scale group {state.name} is at its limit of {count(limit, 'slice')} (max_slices)"
    if entry.shape is not None and entry.slices <= creatable:  # the gang needs several slices for one group
        more, vms = count(creatable, "more slice"), count(state.vm_count or 1, "VM")
        return f"scale group {state.name} allows {more} of {vms} (max_slices: {limit})"
    return f"scale group {state.name} allows {creatable} more (max_slices: {limit})"


def _criterion_text(catalogue: Catalogue, entry: DemandEntry, criterion: Criterion, remaining: int) -> str:
    match criterion.kind:
        case UnmetKind.DEVICE:
            return _device_text(catalogue, entry)
        case UnmetKind.SHAPE:
            return _shape_text(catalogue, entry, remaining)
        case UnmetKind.TAINT:
            return _taint_text(catalogue, entry, remaining)
        case UnmetKind.SIZE:
            return _size_text(catalogue, entry, remaining)
        case UnmetKind.TIME_LEFT:
            longest = max(usable_time(catalogue.states[at].group.template) for at in positions_of(remaining))
            lasts = f"the longest slice lasts {format_duration(longest)} after its start"
            return f"needs {format_duration(entry.timeout)}, but {lasts}"
    return _constraint_text(catalogue, criterion, remaining)


def _device_text(catalogue: Catalogue, entry: DemandEntry) -> str:
    device = entry.resources.device
    available = catalogue.values(keys.DEVICE_VARIANT_ATTRIBUTE_KEY, catalogue.all_groups)
    if device is None or device.variant == AUTO:
        return f"needs a {device.kind if device else 'cpu'}, but scale groups have {list_few(available)}"
    suggestion = _suggestion([device.variant], available)
    return f"needs {device.variant}, but scale groups have {list_few(available)}{suggestion}"


def _shape_text(catalogue: Catalogue, entry: DemandEntry, remaining: int) -> str:
    states = [catalogue.states[index] for index in positions_of(remaining)]
    available = dict.fromkeys(state.vm_count for state in states)
    sizes = list_few(count(vms, "VM") for vms in available if vms is not None)
    wanted = count(entry.shape.size if entry.shape is not None else 1, "VM")
    if entry.shape is None or entry.shape.whole:
        return f"needs slices of {wanted}, but scale groups have slices of {sizes}"
    is_slice = entry.shape.group_by == keys.TPU_NAME_ATTRIBUTE_KEY
    together = "of one slice" if is_slice else f"with the same {entry.shape.group_by}"
    return f"needs {wanted} {together}, but scale groups have slices of {sizes}"


def _taint_text(catalogue: Catalogue, entry: DemandEntry, remaining: int) -> str:
    taints = (
        key.removeprefix(keys.TAINT_KEY_PREFIX)
        for index in positions_of(remaining)
        for key in catalogue.fleet.workers[index].attributes
        if key.startswith(keys.TAINT_KEY_PREFIX)
        and key.removeprefix(keys.TAINT_KEY_PREFIX) not in entry.tolerations
    )
    return f"does not tolerate {list_few(taints)}, a taint of {_suitable_groups(catalogue, remaining)}"


def _size_text(catalogue: Catalogue, entry: DemandEntry, remaining: int) -> str:
    need = Amounts.needed(entry.resources)
    sizes = [catalogue.states[index].vm_size for index in positions_of(remaining)]
    for number, kind in enumerate(AMOUNT_KINDS):
        largest = max(size[number] for size in sizes)
        if need[number] > largest and kind is not ReasonKind.CHIPS:
            has = f"the largest VM has {format_amount(kind, largest)}"
            return f"needs {format_amount(kind, need[number])}, but {has}"
    wanted = " and ".join(format_amount(AMOUNT_KINDS[number], need[number]) for number in (0, 1))
    return f"needs {wanted}, but no VM has both"


def _constraint_text(catalogue: Catalogue, criterion: Criterion, remaining: int) -> str:
    constraint = criterion.constraint
    assert constraint is not None
    key, groups = constraint.key, _suitable_groups(catalogue, remaining)
    has = "has" if remaining.bit_count() == 1 else "have"
    existing = f"but {groups} {has} {list_few(catalogue.values(key, remaining)) or f'no {key}'}"
    if key in _PLACEHOLDER_KEYS:
        existing = "but new slices have other names"
    elif key == keys.TPU_WORKER_ID_ATTRIBUTE_KEY:
        most = max(catalogue.states[index].vm_count or 1 for index in positions_of(remaining))
        existing = f"but the VMs of new slices have {format_indexes(range(most))}"
    if constraint.op not in _OPS_WITH_SUGGESTIONS:
        return f"needs {clip(format_constraint(constraint))}, {existing}"
    wanted = [str(each) for each in constraint.operands]
    needed = " or ".join(clip(each) for each in wanted[:_MAX_LISTED])
    if key in (*_PLACEHOLDER_KEYS, keys.TPU_WORKER_ID_ATTRIBUTE_KEY):
        return f"needs {key}={needed}, {existing}"
    suggestion = _suggestion(wanted, catalogue.values(key, catalogue.all_groups))
    return f"needs {key}={needed}, {existing}{suggestion}"


def _suitable_groups(catalogue: Catalogue, remaining: int) -> str:
    """Return `the scale groups` for all of several, otherwise `the otherwise suitable scale group west`."""
    is_one, are_all = remaining.bit_count() == 1, remaining == catalogue.all_groups
    if are_all and not is_one:
        return "the scale groups"
    names = list_few(catalogue.states[index].name for index in positions_of(remaining))
    return f"{'' if are_all else 'the otherwise suitable '}scale group{'' if is_one else 's'} {names}"


def _suggestion(wanted: Iterable[str], known: Sequence[str]) -> str:
    """Return ` (did you mean x?)` for the first unknown word, or ''. Words with the same start are tried first."""
    for word in wanted:
        if word in known or word in DEVICE_KINDS or lookup(word) is not None:
            continue
        similar = [each for each in known if each[:2].casefold() == word[:2].casefold()]
        suggestion = nearest(word, similar) or nearest(word, known)
        if suggestion is not None:
            return f" (did you mean {suggestion}?)"
    return ""
