"""What events do to the cluster and its workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iris_cli.core import events as ev
from iris_cli.core.cluster import Cluster
from iris_cli.core.events import Event
from iris_cli.core.evolve.illegal import IllegalTransitionError
from iris_cli.core.evolve.records import Records
from iris_cli.core.worker import Span, Worker, WorkerCondition


def _cluster_created(cluster: Cluster, event: ev.ClusterCreated, _at: float, _records: Records) -> None:
    cluster.name = event.name


def _log_compacted(cluster: Cluster, event: ev.LogCompacted, _at: float, _records: Records) -> None:
    """Where the lines are that say what happened changes nothing of it."""


def _worker_registered(cluster: Cluster, event: ev.WorkerRegistered, _at: float, records: Records) -> None:
    if event.worker in cluster.workers:
        raise IllegalTransitionError(f"{event}: the worker is registered already")
    cluster.workers[event.worker] = records.made(
        Worker(id=event.worker, connection=event.connection, condition=WorkerCondition.UNPROBED)
    )


def _worker_updated(cluster: Cluster, event: ev.WorkerUpdated, _at: float, records: Records) -> None:
    worker = cluster.workers[event.worker]
    taints = worker.taints
    if event.incarnation != worker.incarnation:
        cluster.outputs.pop(worker.id, None)  # whatever was there
    shrank = event.cpu < worker.cpu or event.memory < worker.memory or event.gpus < worker.gpus
    cluster.workers[event.worker] = records.change(
        worker,
        connection=event.connection,
        attributes=event.attributes,
        taints=(),
        cpu=event.cpu,
        memory=event.memory,
        chips=event.chips,
        gpus=event.gpus,
        outgrown=frozenset(worker.claims) if shrank else worker.outgrown,
        boot_id=event.boot_id,
        incarnation=event.incarnation,
        declared=event.declared,
        vm=event.vm,
        containment=event.containment,
        unschedulable=bool(event.refusal),
        reason=event.refusal,
    ).with_taints(taints)


def _worker_condition_changed(
    cluster: Cluster, event: ev.WorkerConditionChanged, at: float, records: Records
) -> None:
    worker = cluster.workers[event.worker]
    healthy = event.condition is WorkerCondition.HEALTHY
    since = at if worker.silent_since is None else worker.silent_since
    unwell = Span(last=at) if worker.unwell is None else worker.unwell.until(at)
    cluster.workers[event.worker] = records.change(
        worker,
        condition=event.condition,
        reason=worker.reason if worker.unschedulable else event.reason,
        failed_polls=event.failed_polls,
        cooldown_until=event.cooldown_until,
        silent_since=None if healthy else since,
        unwell=None if healthy else unwell,
        silence=None if healthy else worker.silence,
    )


def _worker_silence_counted(
    cluster: Cluster, event: ev.WorkerSilenceCounted, at: float, records: Records
) -> None:
    worker = cluster.workers[event.worker]
    counted = Span(last=at) if worker.silence is None else worker.silence.until(at)
    cluster.workers[worker.id] = records.change(worker, silence=None if event.anew else counted)


def _worker_skew_changed(cluster: Cluster, event: ev.WorkerSkewChanged, _at: float, records: Records) -> None:
    cluster.workers[event.worker] = records.change(cluster.workers[event.worker], skew=event.skew)


def _worker_quarantined(cluster: Cluster, event: ev.WorkerQuarantined, at: float, records: Records) -> None:
    worker = cluster.workers[event.worker]
    cluster.workers[event.worker] = records.change(
        worker,
        quarantined=not event.lifted,
        quarantine_reason=event.reason,
        quarantined_at=at,
        refusals=0 if event.lifted else worker.refusals,
    )


def _worker_tainted(cluster: Cluster, event: ev.WorkerTainted, _at: float, _records: Records) -> None:
    worker = cluster.workers[event.worker]
    others = tuple(taint for taint in worker.taints if taint != event.taint)
    cluster.workers[event.worker] = worker.with_taints(others if event.removed else (*others, event.taint))


def _worker_drained(cluster: Cluster, event: ev.WorkerDrained, _at: float, records: Records) -> None:
    worker = cluster.workers[event.worker]
    cluster.workers[event.worker] = records.change(worker, draining=True, drain_reason=event.reason)


def _worker_uncordoned(cluster: Cluster, event: ev.WorkerUncordoned, _at: float, records: Records) -> None:
    cluster.workers[event.worker] = records.change(
        cluster.workers[event.worker],
        draining=False,
        drain_reason="",
        quarantined=False,
        quarantine_reason="",
        refusals=0,
        cooldown_until=0.0,
    )


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
