"""How scale groups stand, by the log: slices, back-off, and what their VMs were seen to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.capacity import Amounts
from iris_cli.core.cluster import Cluster
from iris_cli.core.limits import Limits
from iris_cli.core.scale_group import ScaleGroup
from iris_cli.core.slice import GroupRecord, Slice
from iris_cli.core.units import format_duration
from iris_cli.core.worker import Worker


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
            (unheard or {}).get(group.name) or backing_off(cluster.scale_groups.get(group.name), now, limits),
        )
        for group in groups
    ]


def backing_off(record: GroupRecord | None, now: float, limits: Limits) -> str:
    """Why a group makes nothing for a while, "" if it may. A wait longer than the longest one counts as over."""
    if record is None or not 0 < record.backoff_until - now <= limits.scale_backoff_max:
        return ""
    return f"{record.error}, for another {format_duration(record.backoff_until - now)}"


def _state(cluster: Cluster, group: ScaleGroup, slices: Sequence[Slice], backing_off: str) -> GroupState:
    seen = [
        worker
        for each in slices
        for worker_id in each.workers
        if (worker := cluster.workers.get(worker_id)) is not None and worker.incarnation
    ]
    vms = [len(each.hosts) for each in slices if each.hosts]
    return GroupState(
        group=group,
        slices=len(slices),
        booting=sum(each.coming for each in slices),
        backing_off=backing_off,
        vms=min(vms, default=None),
        vm=_least(seen),
    )


def _least(workers: Sequence[Worker]) -> Amounts | None:
    """What all of these workers have."""
    if not workers:
        return None
    return Amounts(
        cpu_millis=min(worker.cpu_millis for worker in workers),
        memory=min(worker.memory for worker in workers),
        gpus=min(worker.gpus for worker in workers),
        chips=1,
    )
