"""What events do to slices that are made on demand."""

from __future__ import annotations

from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event
from iris_cli.core.evolve.edit import Edit, on
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.model.slice import Keeper, SeenSlice, Slice, SliceState

_UP = (SliceState.CREATING, SliceState.BOOTING, SliceState.READY)


def _slice_requested(edit: Edit, event: ev.SliceRequested, at: float) -> None:
    if event.slice in edit.cluster.slices:
        raise IllegalTransitionError(f"{event}: there is a slice of that name")
    requested = Slice(
        name=event.slice,
        group=event.group,
        template=event.template,
        requested_at=at,
        setup=event.setup,
        wanted_by=event.wanted_by,
    )
    edit.add_slice(requested)
    edit.group(event.group).requested += 1


def _slice_created(edit: Edit, event: ev.SliceCreated, at: float) -> None:
    made = _in(edit, event, event.slice, SliceState.REQUESTED)
    made.state, made.created_at = SliceState.CREATING, at


def _slice_refused(edit: Edit, event: ev.SliceRefused, _at: float) -> None:
    _in(edit, event, event.slice, SliceState.REQUESTED)
    del edit.cluster.slices[event.slice]


def _slice_started(edit: Edit, event: ev.SliceStarted, at: float) -> None:
    made = _in(edit, event, event.slice, *_UP)
    made.hosts, made.incarnation = event.hosts, event.incarnation
    if made.state is SliceState.CREATING:
        made.state, made.started_at = SliceState.BOOTING, at


def _slice_set_up(edit: Edit, event: ev.SliceSetUp, _at: float) -> None:
    made = _in(edit, event, event.slice, SliceState.BOOTING)
    if not event.error:
        made.set_up = tuple(sorted({*made.set_up, event.vm}))


def _slice_joined(edit: Edit, event: ev.SliceJoined, at: float) -> None:
    made = _in(edit, event, event.slice, SliceState.BOOTING)
    made.state, made.joined_at = SliceState.READY, at
    group = edit.group(made.group)
    group.failures, group.backoff_until, group.error = 0, 0.0, ""
    workers = [edit.cluster.workers[worker] for worker in made.workers if worker in edit.cluster.workers]
    if workers:
        group.seen = SeenSlice(
            type=made.template.type,
            vms=len(made.hosts),
            cpu_millis=min(worker.cpu_millis for worker in workers),
            memory=min(worker.memory for worker in workers),
            gpus=min(worker.gpus for worker in workers),
        )


def _slice_deletion_requested(edit: Edit, event: ev.SliceDeletionRequested, at: float) -> None:
    if event.slice in edit.cluster.slices:
        made = _in(edit, event, event.slice, SliceState.REQUESTED, *_UP)
    elif event.template is None:
        raise KeyError(event.slice)
    else:
        made = Slice(name=event.slice, group=event.group, template=event.template)
        edit.add_slice(made)
    made.state, made.deleting_at, made.reason = SliceState.DELETING, at, event.reason


def _slice_deleted(edit: Edit, event: ev.SliceDeleted, _at: float) -> None:
    _in(edit, event, event.slice, SliceState.DELETING)
    del edit.cluster.slices[event.slice]


def _backed_off(edit: Edit, event: ev.ScaleGroupBackedOff, _at: float) -> None:
    group = edit.group(event.group)
    group.failures, group.backoff_until, group.error = event.failures, event.until, event.error


def _adopted(edit: Edit, event: ev.SlicesAdopted, _at: float) -> None:
    edit.cluster.keeper = Keeper(place=event.place, where=event.where)
    for name, number in event.counted.items():
        group = edit.group(name)
        group.requested = max(group.requested, number)


def _in(edit: Edit, event: Event, name: str, *states: SliceState) -> Slice:
    """The slice, to assign to, in one of these states. Raises IllegalTransitionError, KeyError."""
    if edit.cluster.slices[name].state not in states:
        raise IllegalTransitionError(f"{event} does not fit {name}, {edit.cluster.slices[name].state}")
    return edit.slice(name)


CHANGES = (
    on(ev.SliceRequested, _slice_requested),
    on(ev.SliceCreated, _slice_created),
    on(ev.SliceRefused, _slice_refused),
    on(ev.SliceStarted, _slice_started),
    on(ev.SliceSetUp, _slice_set_up),
    on(ev.SliceJoined, _slice_joined),
    on(ev.SliceDeletionRequested, _slice_deletion_requested),
    on(ev.SliceDeleted, _slice_deleted),
    on(ev.ScaleGroupBackedOff, _backed_off),
    on(ev.SlicesAdopted, _adopted),
)
