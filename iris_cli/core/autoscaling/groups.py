"""The state of scale groups: the sizes of their slices, and the numbers of slices that they may create."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from iris_cli.core import Amounts, AttributeValue, Cluster, Limits, Worker, WorkerId, lookup, slice_attributes
from iris_cli.core import attributes as keys
from iris_cli.core.model.slice import GroupRecord, ScaleGroup, SeenSlice, Slice, SliceTemplate, with_template
from iris_cli.core.units import format_duration

_GB = 10**9

_SIZES = {  # cores and GB of memory of a VM, by family and number of its chips
    ("v2", 4): (96, 334),
    ("v3", 4): (96, 334),
    ("v5litepod", 1): (24, 48),
    ("v5litepod", 4): (112, 192),
    ("v5litepod", 8): (224, 384),
}
_UNLIMITED = Amounts(cpu_millis=1 << 40, memory=1 << 60, gpus=0, chips=1)


class GroupState(Struct, frozen=True, kw_only=True):
    """The state of a scale group.

    `slices` counts all slices; `booting` is the number of slices whose VMs are not workers yet. `outdated` are the
    templates of other booting slices, created before the group's template changed. `backing_off` is the reason of a
    back-off, during which the group creates no slices; "" without a back-off. `vms` is the observed number of VMs of a
    slice and `vm` the observed amounts of a VM; None if no slice was observed.
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
        """The slices that the group may create now: while its VM count is unknown, one, which shows the count."""
        if self.backing_off:
            return 0
        if self.vm_count is None:
            return min(1, self.group.max_slices) if self.slices == 0 else 0
        return max(0, self.group.max_slices - self.slices)

    def after_requests(self, slices: int) -> "GroupState":
        """Return the state after the group has requested this number of slices."""
        return GroupState(
            group=self.group,
            slices=self.slices + slices,
            booting=self.booting + slices,
            outdated=self.outdated,
            backing_off=self.backing_off,
            vms=self.vms,
            vm=self.vm,
        )

    @property
    def vm_count(self) -> int | None:
        return self.vms if self.vms is not None else self.group.template.vms

    @property
    def vm_size(self) -> Amounts:
        """The amounts of a new VM. Unknown sizes count as unlimited until the first VM is observed."""
        if self.vm is not None:
            return self.vm
        device = self.group.template.device
        if device.kind != "tpu":
            gpus = device.count if device.kind == "gpu" else 0
            return Amounts(_UNLIMITED.cpu_millis, _UNLIMITED.memory, gpus=gpus, chips=0)
        known = lookup(self.group.template.type)
        size = _SIZES.get((known.family, known.chips_per_vm)) if known else None
        return Amounts(size[0] * 1000, size[1] * _GB, gpus=0, chips=1) if size else _UNLIMITED


def sort_groups(groups: Iterable[GroupState | ScaleGroup]) -> list[GroupState]:
    """Return the states of groups by priority, then by name. A ScaleGroup without a state has no slices yet."""
    states = [each if isinstance(each, GroupState) else GroupState(group=each) for each in groups]
    return sorted(states, key=lambda each: (each.group.priority, each.name))


def booting_workers(groups: Iterable[GroupState | ScaleGroup]) -> Iterator[Worker]:
    """Yield the future workers of all booting slices.

    Their ids sort after the ids of existing workers, in the order in which groups are tried, because a dry run uses
    workers in the order of their ids.
    """
    for group_index, state in enumerate(sort_groups(groups)):
        outdated = (GroupState(group=with_template(state.group, template)) for template in state.outdated)
        for number, booting in enumerate((*[state] * state.booting, *outdated)):
            vms = booting.vm_count or 1
            for index in range(vms):
                yield future_worker(booting, f"~{group_index:06d}-{number:06d}", index, vms)


def future_worker(state: GroupState, slice_name: str, index: int, vms: int | None) -> Worker:
    """Return the worker with number `index` of a slice that doesn't exist yet."""
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
    silent: Mapping[str, str] | None = None,
) -> list[GroupState]:
    """Return the states of the groups. `silent`: groups whose provider did not answer, with the reason."""
    by_group: dict[str, list[Slice]] = {}
    for each in cluster.slices.values():
        by_group.setdefault(each.group, []).append(each)
    states = []
    for group in groups:
        slices = by_group.get(group.name, [])
        seen = _find_observed_size(cluster, group, slices)
        expected = [each.template for each in slices if each.is_expected(now, limits.slice_request_timeout)]
        is_tpu = group.template.device.kind == "tpu"
        provider_error = (silent or {}).get(group.name)
        states.append(
            GroupState(
                group=group,
                slices=len(slices),
                booting=expected.count(group.template),
                outdated=tuple(template for template in expected if template != group.template),
                backing_off=provider_error
                or backoff_reason(cluster.scale_groups.get(group.name), now, limits),
                vms=seen.vms if seen else None,
                vm=Amounts(seen.cpu_millis, seen.memory, seen.gpus, chips=int(is_tpu)) if seen else None,
            )
        )
    return states


def backoff_reason(record: GroupRecord | None, now: float, limits: Limits) -> str:
    """Return the reason of a group's back-off, "" without one. A back-off longer than the maximum is ignored."""
    if record is None or not 0 < record.backoff_until - now <= limits.scale_backoff_max:
        return ""
    return f"{record.error}; {format_duration(record.backoff_until - now)} left"


def _find_observed_size(cluster: Cluster, group: ScaleGroup, slices: Sequence[Slice]) -> SeenSlice | None:
    """Return the size of the group's smallest slice; without slices, the recorded size of its last slice.

    With the size of a larger slice, a task that fits only on larger slices would create slices again and again.
    """
    kind = group.template.kind
    existing = [each for each in slices if each.hosts and each.template.kind == kind]
    workers = [
        worker
        for each in existing
        for worker_id in each.workers
        if (worker := cluster.workers.get(worker_id)) is not None and worker.incarnation
    ]
    if workers:
        return SeenSlice.of(kind, min(len(each.hosts) for each in existing), workers)
    record = cluster.scale_groups.get(group.name)
    return record.seen if record is not None and record.seen and record.seen.type == kind else None
