"""The state of scale groups: the size of their slices, and the number of slices that they may create."""

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

_SIZES = {  # by family and number of chips of the VM
    ("v2", 4): (96, 334),
    ("v3", 4): (96, 334),
    ("v5litepod", 1): (24, 48),
    ("v5litepod", 4): (112, 192),
    ("v5litepod", 8): (224, 384),
}
_PLENTY = Amounts(cpu_millis=1 << 40, memory=1 << 60, gpus=0, chips=1)


def vm_amounts(accelerator_type: str) -> Amounts | None:
    """Return the amounts of one VM of a canonical type, or None if unknown."""
    known = lookup(accelerator_type)
    size = _SIZES.get((known.family, known.chips_per_vm)) if known else None
    if size is None:
        return None
    cores, memory = size
    return Amounts(cpu_millis=cores * 1000, memory=memory * _GB, gpus=0, chips=1)


class GroupState(Struct, frozen=True, kw_only=True):
    """The state of a scale group.

    `slices` counts all slices; `booting` is the number of slices whose VMs are not workers yet. `outdated` are the
    templates of booting slices that differ from the current template. `backing_off` is the reason of a back-off, ""
    without one: during a back-off the group creates no slices. `vms` and `vm` are the observed number of VMs of a slice
    and the amounts of a VM; None: according to the type.
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
        """The number of slices it may create now. If the size of its type is unknown, its first slice must show it."""
        if self.backing_off:
            return 0
        if self.vm_count is None:
            return min(1, self.group.max_slices) if self.slices == 0 else 0
        return max(0, self.group.max_slices - self.slices)

    @property
    def vm_count(self) -> int | None:
        """The number of VMs of a slice, if known."""
        return self.vms if self.vms is not None else self.group.template.vms

    @property
    def vm_size(self) -> Amounts:
        """The amounts of a new VM. Unknown sizes count as unlimited until the first VM is observed."""
        if self.vm is not None:
            return self.vm
        device = self.group.template.device
        if device.kind != "tpu":
            gpus = device.count if device.kind == "gpu" else 0
            return Amounts(_PLENTY.cpu_millis, _PLENTY.memory, gpus=gpus, chips=0)
        return vm_amounts(self.group.template.type) or _PLENTY


def in_order_of_trial(groups: Iterable[GroupState | ScaleGroup]) -> list[GroupState]:
    """Return the groups in the order of trial: by priority, then by name. A ScaleGroup has no slices yet."""
    states = [each if isinstance(each, GroupState) else GroupState(group=each) for each in groups]
    return sorted(states, key=lambda each: (each.group.priority, each.name))


def phantoms(state: GroupState, slices: int, *, rank: int = 0, first: int = 0) -> Iterator[Worker]:
    """Yield the workers of future slices. Their ids sort last, by `rank`, so a dry run fills groups in this order."""
    vms = state.vm_count or 1
    for number in range(first, first + slices):
        for index in range(vms):
            yield phantom(state, f"~{rank:06d}-{number:06d}", index, vms)


def coming(groups: Iterable[GroupState | ScaleGroup]) -> Iterator[Worker]:
    """Yield the future workers of all booting slices."""
    for rank, state in enumerate(in_order_of_trial(groups)):
        yield from phantoms(state, state.booting, rank=rank)
        for number, template in enumerate(state.outdated, start=state.booting):
            old = GroupState(group=as_made(state.group, template))
            yield from phantoms(old, 1, rank=rank, first=number)


def phantom(state: GroupState, slice_name: str, index: int, vms: int | None) -> Worker:
    """Return one worker of a slice that does not exist."""
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
        chips=size.chips,
        gpus=size.gpus,
    )


def group_states(
    cluster: Cluster,
    groups: Iterable[ScaleGroup],
    now: float,
    limits: Limits,
    unheard: Mapping[str, str] | None = None,
) -> list[GroupState]:
    """Return the states of the groups. `unheard`: why a group's provider did not answer; it creates no slices."""
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
    """Return the reason of a group's back-off, "" without one. A wait longer than the maximum counts as over."""
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
        vm=_amounts(seen, group.template) if seen is not None else None,
    )


def _amounts(seen: SeenSlice, template: SliceTemplate) -> Amounts:
    return Amounts(seen.cpu_millis, seen.memory, seen.gpus, chips=int(template.device.kind == "tpu"))


def _seen(cluster: Cluster, group: ScaleGroup, slices: Sequence[Slice]) -> SeenSlice | None:
    """Return the size of its smallest slice, or of the last slice: a task that is too large must not add more."""
    kind = group.template.kind
    there = [each for each in slices if each.hosts and each.template.kind == kind]
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
