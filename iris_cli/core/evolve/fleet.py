"""What events do to the cluster and its workers."""

from __future__ import annotations

from iris_cli.core.events import events as ev
from iris_cli.core.evolve.edit import Edit, on
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.model.worker import Span, Worker, WorkerCondition, with_taints


def _cluster_created(edit: Edit, event: ev.ClusterCreated, _at: float) -> None:
    edit.cluster.name = event.name


def _log_compacted(edit: Edit, event: ev.LogCompacted, _at: float) -> None:
    """Where the lines are that say what happened changes nothing of it."""


def _worker_registered(edit: Edit, event: ev.WorkerRegistered, _at: float) -> None:
    if event.worker in edit.cluster.workers:
        raise IllegalTransitionError(f"{event}: the worker is registered already")
    worker = Worker(id=event.worker, connection=event.connection, condition=WorkerCondition.UNPROBED)
    edit.add_worker(worker)


def _worker_updated(edit: Edit, event: ev.WorkerUpdated, _at: float) -> None:
    worker = edit.worker(event.worker)
    if event.incarnation != worker.incarnation:
        edit.cluster.outputs.pop(worker.id, None)  # whatever was there
    if event.cpu < worker.cpu or event.memory < worker.memory or event.gpus < worker.gpus:
        worker.outgrown = tuple(worker.claims)
    worker.connection, worker.declared = event.connection, event.declared
    worker.attributes = with_taints(event.attributes, worker.taints)
    worker.cpu, worker.memory, worker.chips, worker.gpus = event.cpu, event.memory, event.chips, event.gpus
    worker.boot_id, worker.incarnation, worker.vm = event.boot_id, event.incarnation, event.vm
    worker.containment = event.containment
    worker.unschedulable, worker.reason = bool(event.refusal), event.refusal


def _worker_condition_changed(edit: Edit, event: ev.WorkerConditionChanged, at: float) -> None:
    worker = edit.worker(event.worker)
    worker.condition = event.condition
    if not worker.unschedulable:
        worker.reason = event.reason
    worker.failed_polls, worker.cooldown_until = event.failed_polls, event.cooldown_until
    if event.condition is WorkerCondition.HEALTHY:
        worker.silent_since = worker.unwell = worker.silence = None
        return
    if worker.silent_since is None:
        worker.silent_since = at
    worker.unwell = Span(last=at) if worker.unwell is None else worker.unwell.until(at)


def _worker_silence_counted(edit: Edit, event: ev.WorkerSilenceCounted, at: float) -> None:
    worker = edit.worker(event.worker)
    counted = Span(last=at) if worker.silence is None else worker.silence.until(at)
    worker.silence = None if event.anew else counted


def _worker_skew_changed(edit: Edit, event: ev.WorkerSkewChanged, _at: float) -> None:
    edit.worker(event.worker).skew = event.skew


def _worker_quarantined(edit: Edit, event: ev.WorkerQuarantined, at: float) -> None:
    worker = edit.worker(event.worker)
    worker.quarantined, worker.quarantine_reason = not event.lifted, event.reason
    worker.quarantined_at = at
    if event.lifted:
        worker.refusals = 0


def _worker_tainted(edit: Edit, event: ev.WorkerTainted, _at: float) -> None:
    worker = edit.worker(event.worker)
    own = worker.own_attributes
    others = tuple(taint for taint in worker.taints if taint != event.taint)
    worker.taints = others if event.removed else (*others, event.taint)
    worker.attributes = with_taints(own, worker.taints)


def _worker_drained(edit: Edit, event: ev.WorkerDrained, _at: float) -> None:
    worker = edit.worker(event.worker)
    worker.draining, worker.drain_reason = True, event.reason


def _worker_uncordoned(edit: Edit, event: ev.WorkerUncordoned, _at: float) -> None:
    worker = edit.worker(event.worker)
    worker.draining, worker.drain_reason = False, ""
    worker.quarantined, worker.quarantine_reason = False, ""
    worker.refusals, worker.cooldown_until = 0, 0.0


def _worker_unwedged(edit: Edit, event: ev.WorkerUnwedged, _at: float) -> None:
    """On record for people: what was stopped was none of ours."""
    if event.worker not in edit.cluster.workers:
        raise KeyError(event.worker)


def _worker_forgotten(edit: Edit, event: ev.WorkerForgotten, _at: float) -> None:
    if edit.cluster.workers[event.worker].claims:
        raise IllegalTransitionError(f"{event}: attempts still live there")
    del edit.cluster.workers[event.worker]
    edit.cluster.outputs.pop(event.worker, None)


CHANGES = (
    on(ev.ClusterCreated, _cluster_created),
    on(ev.LogCompacted, _log_compacted),
    on(ev.WorkerRegistered, _worker_registered),
    on(ev.WorkerUpdated, _worker_updated),
    on(ev.WorkerConditionChanged, _worker_condition_changed),
    on(ev.WorkerSilenceCounted, _worker_silence_counted),
    on(ev.WorkerSkewChanged, _worker_skew_changed),
    on(ev.WorkerQuarantined, _worker_quarantined),
    on(ev.WorkerTainted, _worker_tainted),
    on(ev.WorkerDrained, _worker_drained),
    on(ev.WorkerUncordoned, _worker_uncordoned),
    on(ev.WorkerUnwedged, _worker_unwedged),
    on(ev.WorkerForgotten, _worker_forgotten),
)
