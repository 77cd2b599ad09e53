"""Scale groups as they stand: what one of their slices will be, and how many more there may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from iris_cli.core.attributes import (
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_VM_COUNT_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    AttributeValue,
)
from iris_cli.core.ids import WorkerId
from iris_cli.core.model.capacity import Amounts
from iris_cli.core.model.scale_group import ScaleGroup, SliceTemplate, as_made, slice_attributes
from iris_cli.core.model.worker import Worker
from iris_cli.core.resources.topology import lookup

_GB = 10**9

_SIZES = {  # by family and chips of the VM
    ("v2", 4): (96, 334),
    ("v3", 4): (96, 334),
    ("v5litepod", 1): (24, 48),
    ("v5litepod", 4): (112, 192),
    ("v5litepod", 8): (224, 384),
}
_PLENTY = Amounts(cpu_millis=1 << 40, memory=1 << 60, gpus=0, chips=1)


def vm_amounts(accelerator_type: str) -> Amounts | None:
    """What one VM of a canonical type offers, or None where that isn't known."""
    known = lookup(accelerator_type)
    size = _SIZES.get((known.family, known.chips_per_vm)) if known else None
    if size is None:
        return None
    cores, memory = size
    return Amounts(cpu_millis=cores * 1000, memory=memory * _GB, gpus=0, chips=1)


class GroupState(Struct, frozen=True, kw_only=True):
    """A scale group as it stands.

    `slices` counts all that there are or that are being made; of these `booting` are no workers yet, and others were
    asked for by templates that are `outdated` by now. While it backs off it makes none; `backing_off` says why, "" if
    it doesn't. `vms` and `vm` are how many VMs its slices were seen to have and what each was seen to offer; None: as
    the type says.
    """

    group: ScaleGroup
    slices: int = 0
    booting: int = 0
    outdated: tuple[SliceTemplate, ...] = ()
    backing_off: str = ""
    vms: int | None = None
    vm: Amounts | None = None

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def room(self) -> int:
        """How many slices it may make now. Of a type that nobody knows there is one at first, to look at."""
        if self.backing_off:
            return 0
        if self.vm_count is None:
            return min(1, self.group.max_slices) if self.slices == 0 else 0
        return max(0, self.group.max_slices - self.slices)

    @property
    def vm_count(self) -> int | None:
        """How many VMs one of its slices has, as far as that is known."""
        known = lookup(self.group.template.type)
        return self.vms if self.vms is not None else known.vms if known else None

    @property
    def vm_size(self) -> Amounts:
        """What a new VM has. Where nobody knows it has plenty: the first one will show."""
        return self.vm or vm_amounts(self.group.template.type) or _PLENTY


def by_waterfall(groups: Iterable[GroupState | ScaleGroup]) -> list[GroupState]:
    """The groups in the order in which they are tried: by priority, then by name. A bare group has no slices yet."""
    states = [each if isinstance(each, GroupState) else GroupState(group=each) for each in groups]
    return sorted(states, key=lambda each: (each.group.priority, each.name))


def phantoms(state: GroupState, slices: int, *, rank: int = 0, first: int = 0) -> Iterator[Worker]:
    """The workers of slices that are still to come.

    They sort behind all that there are, and among themselves by `rank`, so that a dry run gives to each group what
    routing asked it for.
    """
    vms = state.vm_count or 1
    for number in range(first, first + slices):
        for index in range(vms):
            yield phantom(state, f"~{rank:06d}-{number:06d}", index, vms)


def coming(groups: Iterable[GroupState | ScaleGroup]) -> Iterator[Worker]:
    """The workers of all booting slices, as they will be."""
    for rank, state in enumerate(by_waterfall(groups)):
        yield from phantoms(state, state.booting, rank=rank)
        for number, template in enumerate(state.outdated, start=state.booting):
            old = GroupState(group=as_made(state.group, template))
            yield from phantoms(old, 1, rank=rank, first=number)


def phantom(state: GroupState, slice_name: str, index: int, vms: int | None) -> Worker:
    """One worker of a slice that isn't there."""
    size = state.vm_size
    attributes = {
        **slice_attributes(state.group),
        TPU_NAME_ATTRIBUTE_KEY: AttributeValue(slice_name),
        TPU_WORKER_ID_ATTRIBUTE_KEY: AttributeValue(index),
    }
    if vms is not None:
        attributes[TPU_VM_COUNT_ATTRIBUTE_KEY] = AttributeValue(vms)
    return Worker(
        id=WorkerId(f"{slice_name}-{index:06d}"),
        attributes=attributes,
        cpu=size.cpu_millis / 1000,
        memory=size.memory,
        chips=1,
        gpus=size.gpus,
    )
