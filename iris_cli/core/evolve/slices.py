"""What events do to slices that are made on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Event
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.evolve.records import Records
from iris_cli.core.slice import GroupRecord, Keeper, SeenSlice, Slice, SliceState

_UP = (SliceState.CREATING, SliceState.BOOTING, SliceState.READY)


def _slice_requested(cluster: Cluster, event: ev.SliceRequested, at: float, records: Records) -> None:
    if event.slice in cluster.slices:
        raise IllegalTransitionError(f"{event}: there is a slice of that name")
    made = _begin(cluster, event.slice, records)
    made.group, made.template, made.requested_at = event.group, event.template, at
    made.setup, made.wanted_by = event.setup, event.wanted_by
    _group(cluster, event.group, records).requested += 1


def _slice_created(cluster: Cluster, event: ev.SliceCreated, at: float, records: Records) -> None:
    made = _in(cluster, event, event.slice, records, SliceState.REQUESTED)
    made.state, made.created_at = SliceState.CREATING, at


def _slice_refused(cluster: Cluster, event: ev.SliceRefused, _at: float, records: Records) -> None:
    _in(cluster, event, event.slice, records, SliceState.REQUESTED)
    del cluster.slices[event.slice]


def _slice_started(cluster: Cluster, event: ev.SliceStarted, at: float, records: Records) -> None:
    made = _in(cluster, event, event.slice, records, *_UP)
    made.hosts, made.incarnation = event.hosts, event.incarnation
    if made.state is SliceState.CREATING:
        made.state, made.started_at = SliceState.BOOTING, at


def _slice_set_up(cluster: Cluster, event: ev.SliceSetUp, _at: float, records: Records) -> None:
    made = _in(cluster, event, event.slice, records, SliceState.BOOTING)
    if not event.error:
        made.set_up = tuple(sorted({*made.set_up, event.vm}))


def _slice_joined(cluster: Cluster, event: ev.SliceJoined, at: float, records: Records) -> None:
    made = _in(cluster, event, event.slice, records, SliceState.BOOTING)
    made.state, made.joined_at = SliceState.READY, at
    group = _group(cluster, made.group, records)
    group.failures, group.backoff_until, group.error = 0, 0.0, ""
    workers = [cluster.workers[worker] for worker in made.workers if worker in cluster.workers]
    if workers:
        group.seen = SeenSlice(
            type=made.template.type,
            vms=len(made.hosts),
            cpu_millis=min(worker.cpu_millis for worker in workers),
            memory=min(worker.memory for worker in workers),
            gpus=min(worker.gpus for worker in workers),
        )


def _slice_deletion_requested(
    cluster: Cluster, event: ev.SliceDeletionRequested, at: float, records: Records
) -> None:
    if event.slice in cluster.slices:
        made = _in(cluster, event, event.slice, records, SliceState.REQUESTED, *_UP)
    elif event.template is None:
        raise KeyError(event.slice)
    else:
        made = _begin(cluster, event.slice, records)
        made.group, made.template = event.group, event.template
    made.state, made.deleting_at, made.reason = SliceState.DELETING, at, event.reason


def _slice_deleted(cluster: Cluster, event: ev.SliceDeleted, _at: float, records: Records) -> None:
    _in(cluster, event, event.slice, records, SliceState.DELETING)
    del cluster.slices[event.slice]


def _backed_off(cluster: Cluster, event: ev.ScaleGroupBackedOff, _at: float, records: Records) -> None:
    group = _group(cluster, event.group, records)
    group.failures, group.backoff_until, group.error = event.failures, event.until, event.error


def _adopted(cluster: Cluster, event: ev.SlicesAdopted, _at: float, records: Records) -> None:
    cluster.keeper = Keeper(place=event.place, where=event.where)
    for name, number in event.counted.items():
        group = _group(cluster, name, records)
        group.requested = max(group.requested, number)


def _begin(cluster: Cluster, name: str, records: Records) -> Any:
    cluster.slices[name] = made = records.new(Slice)
    made.name = name
    return made


def _in(cluster: Cluster, event: Event, name: str, records: Records, *states: SliceState) -> Any:
    """The slice, to assign to, in one of these states. Raises IllegalTransitionError, KeyError."""
    if cluster.slices[name].state not in states:
        raise IllegalTransitionError(f"{event} does not fit {name}, {cluster.slices[name].state}")
    return records.of(cluster.slices, name)


def _group(cluster: Cluster, name: str, records: Records) -> Any:
    if name not in cluster.scale_groups:
        cluster.scale_groups[name] = group = records.new(GroupRecord)
        group.name = name
    return records.of(cluster.scale_groups, name)


APPLY: dict[type[Event], Callable[[Cluster, Any, float, Records], None]] = {
    ev.SliceRequested: _slice_requested,
    ev.SliceCreated: _slice_created,
    ev.SliceRefused: _slice_refused,
    ev.SliceStarted: _slice_started,
    ev.SliceSetUp: _slice_set_up,
    ev.SliceJoined: _slice_joined,
    ev.SliceDeletionRequested: _slice_deletion_requested,
    ev.SliceDeleted: _slice_deleted,
    ev.ScaleGroupBackedOff: _backed_off,
    ev.SlicesAdopted: _adopted,
}
