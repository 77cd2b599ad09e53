"""What events do to the cluster and its workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Event
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.evolve.records import Records
from iris_cli.core.worker import Span, Worker, WorkerCondition, with_taints


def _cluster_created(cluster: Cluster, event: ev.ClusterCreated, _at: float, _records: Records) -> None:
    cluster.name = event.name


def _log_compacted(cluster: Cluster, event: ev.LogCompacted, _at: float, _records: Records) -> None:
    """Where the lines are that say what happened changes nothing of it."""


def _worker_registered(cluster: Cluster, event: ev.WorkerRegistered, _at: float, records: Records) -> None:
    if event.worker in cluster.workers:
        raise IllegalTransitionError(f"{event}: the worker is registered already")
    cluster.workers[event.worker] = worker = records.new(Worker)
    worker.id, worker.connection, worker.condition = event.worker, event.connection, WorkerCondition.UNPROBED


def _worker_updated(cluster: Cluster, event: ev.WorkerUpdated, _at: float, records: Records) -> None:
    worker = records.worker(cluster, event.worker)
    if event.incarnation != worker.incarnation:
        cluster.outputs.pop(worker.id, None)  # whatever was there
    if event.cpu < worker.cpu or event.memory < worker.memory or event.gpus < worker.gpus:
        worker.outgrown = frozenset(worker.claims)
    worker.connection, worker.declared = event.connection, event.declared
    worker.attributes = with_taints(event.attributes, worker.taints)
    worker.cpu, worker.memory, worker.chips, worker.gpus = event.cpu, event.memory, event.chips, event.gpus
    worker.boot_id, worker.incarnation, worker.vm = event.boot_id, event.incarnation, event.vm
    worker.containment = event.containment
    worker.unschedulable, worker.reason = bool(event.refusal), event.refusal


def _worker_condition_changed(
    cluster: Cluster, event: ev.WorkerConditionChanged, at: float, records: Records
) -> None:
    worker = records.worker(cluster, event.worker)
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


def _worker_silence_counted(
    cluster: Cluster, event: ev.WorkerSilenceCounted, at: float, records: Records
) -> None:
    worker = records.worker(cluster, event.worker)
    counted = Span(last=at) if worker.silence is None else worker.silence.until(at)
    worker.silence = None if event.anew else counted


def _worker_skew_changed(cluster: Cluster, event: ev.WorkerSkewChanged, _at: float, records: Records) -> None:
    records.worker(cluster, event.worker).skew = event.skew


def _worker_quarantined(cluster: Cluster, event: ev.WorkerQuarantined, at: float, records: Records) -> None:
    worker = records.worker(cluster, event.worker)
    worker.quarantined, worker.quarantine_reason = not event.lifted, event.reason
    worker.quarantined_at = at
    if event.lifted:
        worker.refusals = 0


def _worker_tainted(cluster: Cluster, event: ev.WorkerTainted, _at: float, records: Records) -> None:
    worker = records.worker(cluster, event.worker)
    own = worker.own_attributes
    others = tuple(taint for taint in worker.taints if taint != event.taint)
    worker.taints = others if event.removed else (*others, event.taint)
    worker.attributes = with_taints(own, worker.taints)


def _worker_drained(cluster: Cluster, event: ev.WorkerDrained, _at: float, records: Records) -> None:
    worker = records.worker(cluster, event.worker)
    worker.draining, worker.drain_reason = True, event.reason


def _worker_uncordoned(cluster: Cluster, event: ev.WorkerUncordoned, _at: float, records: Records) -> None:
    worker = records.worker(cluster, event.worker)
    worker.draining, worker.drain_reason = False, ""
    worker.quarantined, worker.quarantine_reason = False, ""
    worker.refusals, worker.cooldown_until = 0, 0.0


def _worker_unwedged(cluster: Cluster, event: ev.WorkerUnwedged, _at: float, _records: Records) -> None:
    """On record for people: what was stopped was none of ours."""
    if event.worker not in cluster.workers:
        raise KeyError(event.worker)


def _worker_forgotten(cluster: Cluster, event: ev.WorkerForgotten, _at: float, _records: Records) -> None:
    if cluster.workers[event.worker].claims:
        raise IllegalTransitionError(f"{event}: attempts still live there")
    del cluster.workers[event.worker]
    cluster.outputs.pop(event.worker, None)


APPLY: dict[type[Event], Callable[[Cluster, Any, float, Records], None]] = {
    ev.ClusterCreated: _cluster_created,
    ev.LogCompacted: _log_compacted,
    ev.WorkerRegistered: _worker_registered,
    ev.WorkerUpdated: _worker_updated,
    ev.WorkerConditionChanged: _worker_condition_changed,
    ev.WorkerSilenceCounted: _worker_silence_counted,
    ev.WorkerSkewChanged: _worker_skew_changed,
    ev.WorkerQuarantined: _worker_quarantined,
    ev.WorkerTainted: _worker_tainted,
    ev.WorkerDrained: _worker_drained,
    ev.WorkerUncordoned: _worker_uncordoned,
    ev.WorkerUnwedged: _worker_unwedged,
    ev.WorkerForgotten: _worker_forgotten,
}
