"""Workers that are silent, refuse or recover. Silence is not death: it ends, stops and charges nothing."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core import INCOMPLETE, AttemptState, Cluster, EndReason, Limits, WorkerId, slice_of
from iris_cli.core.events import events
from iris_cli.core.evolve import Draft
from iris_cli.core.messages.observations import SILENT, Silence, SilenceKind
from iris_cli.core.model.worker import Connection, Worker, WorkerCondition, cooling

REMOVED = "removed from cluster.yaml"
VM_IS_PREEMPTED = "its VM is being preempted"

_LOST_AFTER_POLLS = 3
_ASKED_AGAIN = frozenset({*SILENT, SilenceKind.PROTOCOL})
"""Failures after which the worker is polled again at once. A wrong or refused key would not change."""


def reconcile(draft: Draft, hosts: Mapping[WorkerId, Connection]) -> None:
    """Apply the configuration: register new hosts, drain removed ones, forget removed ones without attempts."""
    for worker_id, connection in hosts.items():
        worker = draft.cluster.workers.get(worker_id)
        if worker is None:
            draft.record(events.WorkerRegistered(worker=worker_id, connection=connection))
            hold_until_complete(draft, worker_id)
        elif worker.draining and worker.drain_reason == REMOVED:
            draft.record(events.WorkerUncordoned(worker=worker_id))
    for worker in list(draft.cluster.workers.values()):
        if worker.id in hosts:
            continue
        if not worker.claims:
            draft.record(events.WorkerForgotten(worker=worker.id, reason=REMOVED))
        elif not worker.draining:
            draft.record(events.WorkerDrained(worker=worker.id, reason=REMOVED))


def hold_until_complete(draft: Draft, worker_id: WorkerId) -> None:
    """Drain a VM whose slice is not complete yet, even if the operator re-registered or uncordoned it."""
    known = draft.cluster.slices.get(slice_of(worker_id))
    if known is not None and known.coming:
        draft.record(events.WorkerDrained(worker=worker_id, reason=INCOMPLETE))


def record_silence(
    draft: Draft, silence: Silence, limits: Limits, *, asked_at: float | None = None, launching: bool = False
) -> None:
    """Record a call without an answer, and the back-off of the worker.

    After a failed launch (`launching`) the next cycle polls the worker: the back-off begins when that fails. A
    call sent (`asked_at`) before the last recorded silence adds nothing.
    """
    worker = draft.cluster.workers[silence.worker]
    launching = launching and silence.kind in _ASKED_AGAIN
    if not launching and asked_at is not None and _recorded_since(worker, asked_at, draft.at):
        return
    failed = worker.failed_polls + (not launching)
    change = events.WorkerConditionChanged(
        worker=worker.id,
        condition=_condition_after(worker, silence, failed, draft.at, limits),
        reason=f"{silence.step}: {silence.detail}",
        failed_polls=failed,
        cooldown_until=0.0 if launching else round(draft.at + limits.backoff(failed), 3),
    )
    draft.record(change)


def _recorded_since(worker: Worker, asked_at: float, now: float) -> bool:
    """Return whether a silence of the worker was recorded after `asked_at`. A future one is ignored."""
    return worker.unwell is not None and asked_at < worker.unwell.last <= now


def record_recovery(draft: Draft, worker_id: WorkerId) -> None:
    """Record that the worker answers with its known identity."""
    worker = draft.cluster.workers[worker_id]
    if worker.condition is not WorkerCondition.HEALTHY or worker.failed_polls:
        draft.record(events.WorkerConditionChanged(worker=worker_id, condition=WorkerCondition.HEALTHY))


def require_probes(draft: Draft) -> None:
    """Block all workers until a probe has shown their attempts, because lines of the log were lost."""
    reason = "lines of the log were lost: a probe will show what is running"
    for worker in draft.cluster.workers.values():
        if worker.incarnation and worker.condition is not WorkerCondition.UNPROBED:
            draft.record(
                events.WorkerConditionChanged(
                    worker=worker.id, condition=WorkerCondition.UNPROBED, reason=reason
                )
            )


def distrust(draft: Draft, worker_id: WorkerId, reason: str, limits: Limits) -> None:
    """Record that the answering host may be another machine: nothing is released, and nothing is placed on it."""
    worker = draft.cluster.workers[worker_id]
    failed = worker.failed_polls + 1
    draft.record(
        events.WorkerConditionChanged(
            worker=worker_id,
            condition=WorkerCondition.UNTRUSTED,
            reason=reason,
            failed_polls=failed,
            cooldown_until=round(draft.at + limits.backoff(failed), 3),
        )
    )


def record_refusal(draft: Draft, worker_id: WorkerId, error: str, limits: Limits) -> None:
    """Record a refused launch: the worker cools down, and is quarantined after several refusals in a row."""
    worker = draft.cluster.workers[worker_id]
    draft.record(
        events.WorkerConditionChanged(
            worker=worker.id,
            condition=worker.condition,
            reason=error,
            failed_polls=worker.failed_polls,
            cooldown_until=round(draft.at + limits.backoff(worker.refusals), 3),
        )
    )
    if worker.refusals >= limits.quarantine_after and not worker.quarantined:
        reason = f"refused {worker.refusals} launches in a row, last: {error}"
        draft.record(events.WorkerQuarantined(worker=worker_id, reason=reason))


def record_preemption(draft: Draft, worker_id: WorkerId, seconds_ago: float, limits: Limits) -> None:
    """Record that the end of a worker's VM was announced: it cools down for the longest back-off from then on.

    The VM answers until it is gone. If it is not gone by then, the notice was about something else.
    """
    worker = draft.cluster.workers[worker_id]
    until = round(draft.at - seconds_ago + limits.backoff_max, 3)
    if worker.condition is WorkerCondition.HEALTHY and until > max(draft.at, worker.cooldown_until):
        draft.record(
            events.WorkerConditionChanged(
                worker=worker_id,
                condition=worker.condition,
                reason=VM_IS_PREEMPTED,
                failed_polls=worker.failed_polls,
                cooldown_until=until,
            )
        )


def record_unkillable(draft: Draft, worker_id: WorkerId) -> None:
    """Quarantine a worker with an unkillable process until the operator has repaired it."""
    if not draft.cluster.workers[worker_id].quarantined:
        reason = (
            "a process of a stopped attempt can't be killed; reboot the host, then `iris worker uncordon`"
        )
        draft.record(events.WorkerQuarantined(worker=worker_id, reason=reason))


def lift_old_quarantine(draft: Draft, worker_id: WorkerId, limits: Limits) -> None:
    """Lift an old enough quarantine after a successful probe, unless an attempt is stopping or may still run."""
    worker = draft.cluster.workers[worker_id]
    stopping = any(attempt.state is AttemptState.STOPPING for _, attempt in draft.cluster.live_on(worker_id))
    stuck = stopping or worker_id in draft.cluster.ghosts
    if is_quarantine_over(worker, draft.at, limits) and not stuck and not worker.unschedulable:
        draft.record(events.WorkerQuarantined(worker=worker_id, reason="", lifted=True))


def is_quarantine_over(worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether a quarantine is old enough to be lifted, or began in the future because a clock was wrong."""
    return worker.quarantined and not 0 <= now - worker.quarantined_at < limits.quarantine_retry


def is_backing_off(cluster: Cluster, worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether the worker is not polled now. A worker that answers is polled even while it gets no new work."""
    if worker.condition is WorkerCondition.HEALTHY or not cooling(worker, now, limits):
        return False
    last = worker.unwell.last if worker.unwell is not None else now
    return now - last < limits.backoff_first or not _is_awaited_for_verdict(cluster, worker, now, limits)


def _is_awaited_for_verdict(cluster: Cluster, worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether a verdict waits for this silent worker: a longer back-off would outlast the wait."""
    return worker.condition in (WorkerCondition.SUSPECT, WorkerCondition.LOST) and any(
        attempt.stop is not None
        and attempt.stop.reason is EndReason.SIBLING
        and 0 <= now - attempt.stop.at < limits.settle_seconds
        for attempt_id, attempt in cluster.live_on(worker.id)
        if (job := cluster.jobs[attempt_id.task.job]).end is None and job.rounds != job.settled_rounds
    )


def _condition_after(
    worker: Worker, silence: Silence, failed: int, now: float, limits: Limits
) -> WorkerCondition:
    if silence.kind is SilenceKind.HOST_KEY:
        return WorkerCondition.UNTRUSTED
    if worker.condition in (WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED):
        return worker.condition
    if silence.kind is SilenceKind.AUTH:
        return WorkerCondition.AUTH_FAILED
    long = worker.silent_since is not None and now - worker.silent_since >= limits.worker_lost_after
    if silence.kind in SILENT and long and failed >= _LOST_AFTER_POLLS:
        return WorkerCondition.LOST
    return WorkerCondition.LOST if worker.condition is WorkerCondition.LOST else WorkerCondition.SUSPECT


_MATERIAL = 5.0
_RESOLUTION = 1.0  # workers report whole seconds


def record_clock(draft: Draft, worker_id: WorkerId, clock: float, asked_at: float, heard_at: float) -> None:
    """Record a worker's clock skew if the round trip proves a change. A `clock` of 0 means not reported."""
    if not clock or worker_id not in draft.cluster.workers:
        return
    least, most = clock - heard_at, clock + _RESOLUTION - asked_at
    known = draft.cluster.workers[worker_id].skew
    if not least - _MATERIAL <= known <= most + _MATERIAL:
        skew = float(round(min(max(0.0, least), most)))
        draft.record(events.WorkerSkewChanged(worker=worker_id, skew=skew))
