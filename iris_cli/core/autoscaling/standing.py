"""How scale groups stand, by the log: slices, back-off, and what their VMs were seen to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from iris_cli.core.autoscaling.groups import GroupState
from iris_cli.core.model.capacity import Amounts
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.scale_group import ScaleGroup
from iris_cli.core.model.slice import GroupRecord, SeenSlice, Slice
from iris_cli.core.units import format_duration


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
    return f"{record.error}, for another {format_duration(record.backoff_until - now)}"


def _state(
    cluster: Cluster,
    group: ScaleGroup,
    slices: Sequence[Slice],
    now: float,
    limits: Limits,
    backing_off: str,
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
    """What its slices are: those of its present type that are there, else the last one that was.

    That one is remembered: else what is too large for it would have another one made, again and again.
    """
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
