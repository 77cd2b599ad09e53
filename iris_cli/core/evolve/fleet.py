"""Effects of events on the cluster, its workers, and on-demand slices."""

from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event
from iris_cli.core.evolve.edit import Edit, IllegalTransitionError, change_row
from iris_cli.core.model.slice import SeenSlice, Slice, SliceOwner, SliceState, slice_of
from iris_cli.core.model.worker import Span, Worker, WorkerCondition, with_taints


def _cluster_created(edit: Edit, event: ev.ClusterCreated, _at: float) -> None:
    if edit.cluster.name:
        raise IllegalTransitionError(f"{event}: the cluster {edit.cluster.name} exists already")
    edit.cluster.name = event.name


def _log_compacted(edit: Edit, event: ev.LogCompacted, _at: float) -> None:
    """Change nothing, because moving lines to the archive does not change the state."""


def _worker_registered(edit: Edit, event: ev.WorkerRegistered, _at: float) -> None:
    if event.worker in edit.cluster.workers:
        raise IllegalTransitionError(f"{event}: the worker is registered already")
    worker = Worker(id=event.worker, connection=event.connection, condition=WorkerCondition.UNPROBED)
    known_slice = edit.cluster.slices.get(slice_of(event.worker))
    if known_slice is not None:
        worker.ends_at = known_slice.ends_at
    edit.workers[worker.id] = worker


def _worker_updated(edit: Edit, event: ev.WorkerUpdated, _at: float) -> None:
    worker = edit.workers[event.worker]
    if event.incarnation != worker.incarnation:
        edit.cluster.outputs.pop(worker.id, None)  # the files of the earlier incarnation are gone
    attributes = with_taints(event.attributes, worker.taints)
    is_smaller = event.cpu < worker.cpu or event.memory < worker.memory or event.gpus < worker.gpus
    if is_smaller or attributes != worker.attributes:
        worker.placed_before_change = tuple(worker.claims)
    worker.connection, worker.declared, worker.attributes = event.connection, event.declared, attributes
    worker.cpu, worker.memory, worker.chips, worker.gpus = event.cpu, event.memory, event.chips, event.gpus
    worker.boot_id, worker.incarnation, worker.vm = event.boot_id, event.incarnation, event.vm
    worker.containment = event.containment
    worker.unschedulable, worker.reason = bool(event.refusal), event.refusal


def _worker_condition_changed(edit: Edit, event: ev.WorkerConditionChanged, at: float) -> None:
    worker = edit.workers[event.worker]
    worker.condition = event.condition
    if not worker.unschedulable:
        worker.reason = event.reason
    worker.failed_polls, worker.cooldown_until = event.failed_polls, event.cooldown_until
    if event.condition is WorkerCondition.HEALTHY:
        worker.silent_since = worker.unwell = worker.silence = None
        return
    if worker.silent_since is None:
        worker.silent_since = at
    worker.unwell = Span(last=at) if worker.unwell is None else worker.unwell.extend_to(at)


def _worker_silence_counted(edit: Edit, event: ev.WorkerSilenceCounted, at: float) -> None:
    worker = edit.workers[event.worker]
    counted = Span(last=at) if worker.silence is None else worker.silence.extend_to(at)
    worker.silence = None if event.anew else counted


def _worker_skew_changed(edit: Edit, event: ev.WorkerSkewChanged, _at: float) -> None:
    edit.workers[event.worker].skew = event.skew


def _worker_quarantined(edit: Edit, event: ev.WorkerQuarantined, at: float) -> None:
    worker = edit.workers[event.worker]
    worker.quarantined, worker.quarantine_reason = not event.lifted, event.reason
    worker.quarantined_at = at
    if event.lifted:
        worker.refusals = 0


def _worker_tainted(edit: Edit, event: ev.WorkerTainted, _at: float) -> None:
    worker = edit.workers[event.worker]
    attributes = worker.attributes_without_taints
    others = tuple(taint for taint in worker.taints if taint != event.taint)
    worker.taints = others if event.removed else (*others, event.taint)
    worker.attributes = with_taints(attributes, worker.taints)


def _worker_drained(edit: Edit, event: ev.WorkerDrained, _at: float) -> None:
    worker = edit.workers[event.worker]
    worker.draining, worker.drain_reason = True, event.reason


def _worker_uncordoned(edit: Edit, event: ev.WorkerUncordoned, _at: float) -> None:
    worker = edit.workers[event.worker]
    worker.draining, worker.drain_reason = False, ""
    worker.quarantined, worker.quarantine_reason = False, ""
    worker.refusals, worker.cooldown_until = 0, 0.0


def _worker_unwedged(edit: Edit, event: ev.WorkerUnwedged, _at: float) -> None:
    """Change nothing: `iris history` shows the event, and iris does not track the stopped processes."""
    if event.worker not in edit.cluster.workers:
        raise KeyError(event.worker)


def _worker_forgotten(edit: Edit, event: ev.WorkerForgotten, _at: float) -> None:
    if edit.cluster.workers[event.worker].claims:
        raise IllegalTransitionError(f"{event}: the worker has live attempts")
    del edit.cluster.workers[event.worker]
    edit.cluster.outputs.pop(event.worker, None)


_CREATED_STATES = (SliceState.CREATING, SliceState.BOOTING, SliceState.READY)


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
    edit.slices[requested.name] = requested
    edit.group(event.group).requested += 1


def _slice_created(edit: Edit, event: ev.SliceCreated, at: float) -> None:
    known = _slice_in_state(edit, event, event.slice, SliceState.REQUESTED)
    known.state, known.created_at = SliceState.CREATING, at


def _slice_refused(edit: Edit, event: ev.SliceRefused, _at: float) -> None:
    _slice_in_state(edit, event, event.slice, SliceState.REQUESTED)
    del edit.cluster.slices[event.slice]


def _slice_started(edit: Edit, event: ev.SliceStarted, at: float) -> None:
    known = _slice_in_state(edit, event, event.slice, *_CREATED_STATES)
    known.hosts, known.incarnation = event.hosts, event.incarnation
    if known.state is SliceState.CREATING:
        known.state, known.started_at = SliceState.BOOTING, at


def _slice_reported(edit: Edit, event: ev.SliceReported, _at: float) -> None:
    known = edit.slices[event.slice]
    known.remark, known.ends_at = event.remark, event.ends_at
    for worker in known.workers:
        if worker in edit.cluster.workers:
            edit.workers[worker].ends_at = event.ends_at


def _slice_set_up(edit: Edit, event: ev.SliceSetUp, _at: float) -> None:
    known = _slice_in_state(edit, event, event.slice, SliceState.BOOTING)
    if not event.error:
        known.set_up = tuple(sorted({*known.set_up, event.vm}))


def _slice_joined(edit: Edit, event: ev.SliceJoined, at: float) -> None:
    known = _slice_in_state(edit, event, event.slice, SliceState.BOOTING)
    known.state, known.joined_at = SliceState.READY, at
    group = edit.group(known.group)
    group.failures, group.backoff_until, group.error = 0, 0.0, ""
    workers = [edit.cluster.workers[worker] for worker in known.workers if worker in edit.cluster.workers]
    if workers:
        group.seen = SeenSlice.of(known.template.kind, len(known.hosts), workers)


def _slice_deletion_requested(edit: Edit, event: ev.SliceDeletionRequested, at: float) -> None:
    if event.slice in edit.cluster.slices:
        known = _slice_in_state(edit, event, event.slice, SliceState.REQUESTED, *_CREATED_STATES)
    elif event.template is None:
        raise KeyError(event.slice)
    else:
        known = Slice(name=event.slice, group=event.group, template=event.template)
        edit.slices[known.name] = known
    known.state, known.deleting_at, known.reason = SliceState.DELETING, at, event.reason


def _slice_deleted(edit: Edit, event: ev.SliceDeleted, _at: float) -> None:
    _slice_in_state(edit, event, event.slice, SliceState.DELETING)
    del edit.cluster.slices[event.slice]


def _scale_group_backed_off(edit: Edit, event: ev.ScaleGroupBackedOff, _at: float) -> None:
    group = edit.group(event.group)
    group.failures, group.backoff_until, group.error = event.failures, event.until, event.error


def _slices_adopted(edit: Edit, event: ev.SlicesAdopted, _at: float) -> None:
    edit.cluster.slice_owner = SliceOwner(place=event.place, where=event.where)
    for name, number in event.counted.items():
        group = edit.group(name)
        group.requested = max(group.requested, number)


def _slice_in_state(edit: Edit, event: Event, name: str, *states: SliceState) -> Slice:
    """Return a slice in one of these states, to change it. Raises IllegalTransitionError, KeyError."""
    if edit.cluster.slices[name].state not in states:
        raise IllegalTransitionError(f"{event} does not fit {name}, {edit.cluster.slices[name].state}")
    return edit.slices[name]


CHANGES = (
    change_row(ev.ClusterCreated, _cluster_created),
    change_row(ev.LogCompacted, _log_compacted),
    change_row(ev.WorkerRegistered, _worker_registered),
    change_row(ev.WorkerUpdated, _worker_updated),
    change_row(ev.WorkerConditionChanged, _worker_condition_changed),
    change_row(ev.WorkerSilenceCounted, _worker_silence_counted),
    change_row(ev.WorkerSkewChanged, _worker_skew_changed),
    change_row(ev.WorkerQuarantined, _worker_quarantined),
    change_row(ev.WorkerTainted, _worker_tainted),
    change_row(ev.WorkerDrained, _worker_drained),
    change_row(ev.WorkerUncordoned, _worker_uncordoned),
    change_row(ev.WorkerUnwedged, _worker_unwedged),
    change_row(ev.WorkerForgotten, _worker_forgotten),
    change_row(ev.SliceRequested, _slice_requested),
    change_row(ev.SliceCreated, _slice_created),
    change_row(ev.SliceRefused, _slice_refused),
    change_row(ev.SliceStarted, _slice_started),
    change_row(ev.SliceReported, _slice_reported),
    change_row(ev.SliceSetUp, _slice_set_up),
    change_row(ev.SliceJoined, _slice_joined),
    change_row(ev.SliceDeletionRequested, _slice_deletion_requested),
    change_row(ev.SliceDeleted, _slice_deleted),
    change_row(ev.ScaleGroupBackedOff, _scale_group_backed_off),
    change_row(ev.SlicesAdopted, _slices_adopted),
)
