"""Scale groups as they stand: what one of their slices will be, and how many more there may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from iris_cli.core import Amounts, Cluster, Limits, Worker, WorkerId
from iris_cli.core import attributes as keys
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.model.slice import (
    GroupRecord,
    ScaleGroup,
    SeenSlice,
    Slice,
    SliceTemplate,
    as_made,
    slice_attributes,
)
from iris_cli.core.topology import lookup
from iris_cli.core.units import format_duration

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
    """The workers of slices to come. They sort after all others, by `rank`: a dry run fills groups as routing did."""
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
        keys.TPU_NAME_ATTRIBUTE_KEY: AttributeValue(slice_name),
        keys.TPU_WORKER_ID_ATTRIBUTE_KEY: AttributeValue(index),
    }
    if vms is not None:
        attributes[keys.TPU_VM_COUNT_ATTRIBUTE_KEY] = AttributeValue(vms)
    return Worker(
        id=WorkerId(f"{slice_name}-{index:06d}"),
        attributes=attributes,
        cpu=size.cpu_millis / 1000,
        memory=size.memory,
        chips=1,
        gpus=size.gpus,
    )


def group_states(
    cluster: Cluster,
    groups: Iterable[ScaleGroup],
    now: float,
    limits: Limits,
    unheard: Mapping[str, str] | None = None,
) -> list[GroupState]:
    """The groups as they stand. `unheard`: why the provider of some did not answer, by group; they make nothing."""
    by_group: dict[str, list[Slice]] = {}
    for each in cluster.slices.values():
        by_group.setdefault(each.group, []).append(each)
    return [
        _state(
            cluster,
            group,
            by_group.get(group.name, []),
            now,
            limits,
            (unheard or {}).get(group.name) or backing_off(cluster.scale_groups.get(group.name), now, limits),
        )
        for group in groups
    ]


def backing_off(record: GroupRecord | None, now: float, limits: Limits) -> str:
    """Why a group makes nothing for a while, "" if it may. A wait longer than the longest one counts as over."""
    if record is None or not 0 < record.backoff_until - now <= limits.scale_backoff_max:
        return ""
    return f"{record.error}; {format_duration(record.backoff_until - now)} left"


def _state(
    cluster: Cluster, group: ScaleGroup, slices: Sequence[Slice], now: float, limits: Limits, backing_off: str
) -> GroupState:
    seen = _seen(cluster, group, slices)
    coming = [each.template for each in slices if each.expected(now, limits.slice_request_timeout)]
    return GroupState(
        group=group,
        slices=len(slices),
        booting=coming.count(group.template),
        outdated=tuple(template for template in coming if template != group.template),
        backing_off=backing_off,
        vms=seen.vms if seen is not None else None,
        vm=Amounts(seen.cpu_millis, seen.memory, seen.gpus, 1) if seen is not None else None,
    )


def _seen(cluster: Cluster, group: ScaleGroup, slices: Sequence[Slice]) -> SeenSlice | None:
    """The VMs of its slices, else those of the last one: what was too large for that must not scale it again."""
    kind = group.template.type
    there = [each for each in slices if each.hosts and each.template.type == kind]
    workers = [
        worker
        for each in there
        for worker_id in each.workers
        if (worker := cluster.workers.get(worker_id)) is not None and worker.incarnation
    ]
    if workers:
        return SeenSlice(
            type=kind,
            vms=min(len(each.hosts) for each in there),
            cpu_millis=min(worker.cpu_millis for worker in workers),
            memory=min(worker.memory for worker in workers),
            gpus=min(worker.gpus for worker in workers),
        )
    record = cluster.scale_groups.get(group.name)
    return record.seen if record is not None and record.seen and record.seen.type == kind else None
