"""Record that workers don't answer, refuse attempts, or recover. Silence never ends, stops or charges an attempt."""

from collections.abc import Mapping

from iris_cli.core import INCOMPLETE, AttemptState, Cluster, EndReason, Limits, Provider, WorkerId, slice_of
from iris_cli.core.events import events
from iris_cli.core.evolve import Draft
from iris_cli.core.messages.observations import SILENT, Silence, SilenceKind
from iris_cli.core.model.worker import (
    IS_VM,
    OCCUPIED,
    REMOVED,
    VM_IS_PREEMPTED,
    Connection,
    Worker,
    WorkerCondition,
    is_cooling_down,
)

_UNKILLABLE = (
    "a process of a stopped attempt can't be killed; reboot the host, then `iris worker uncordon {}`"
)

_LOST_AFTER_POLLS = 3
_TEMPORARY_FAILURES = frozenset({*SILENT, SilenceKind.PROTOCOL})
"""Failures of a dispatch that may be temporary, unlike a rejected key: the next cycle polls the worker."""


def reconcile(draft: Draft, hosts: Mapping[WorkerId, Connection]) -> None:
    """Apply the configuration: register new hosts; forget removed hosts, or drain them if they have live attempts."""
    for worker_id in [each for each in draft.cluster.workers if each not in hosts]:
        remove_worker(draft, worker_id, REMOVED)
    occupied = _occupied(draft.cluster, hosts)
    for worker_id, connection in hosts.items():
        known = draft.cluster.workers.get(worker_id)
        if known is None:
            draft.record(events.WorkerRegistered(worker=worker_id, connection=connection))
            hold_until_complete(draft, worker_id)
        elif known.draining and known.drain_reason == REMOVED:
            draft.record(events.WorkerUncordoned(worker=worker_id))
        # While a host has another worker, for example the former worker of a renamed slice that still runs attempts,
        # this worker is drained: otherwise two workers would assign the same cores and chips.
        worker, reason = draft.cluster.workers[worker_id], occupied.get(worker_id, "")
        if reason and not worker.draining:
            draft.record(events.WorkerDrained(worker=worker_id, reason=reason))
        elif not reason and worker.draining and worker.drain_reason in (OCCUPIED, IS_VM):
            draft.record(events.WorkerUncordoned(worker=worker_id))


def _occupied(cluster: Cluster, hosts: Mapping[WorkerId, Connection]) -> dict[WorkerId, str]:
    """Return the configured workers whose host already has another worker, each with the reason for its drain."""
    removed = [worker for worker_id, worker in cluster.workers.items() if worker_id not in hosts]
    # Nodes of Slurm allocations may have other workers.
    created = [each for each in cluster.slices.values() if each.template.provider is not Provider.SLURM]
    vms = {worker_id for each in created for worker_id in each.workers if worker_id in hosts}
    reasons = {_address(hosts[worker_id]): IS_VM for worker_id in vms}
    reasons |= {_address(worker.connection): OCCUPIED for worker in removed}
    reasons.pop("", None)
    found = {each: reasons.get(_address(hosts[each]), "") for each in hosts} if reasons else {}
    return {each: reason for each, reason in found.items() if reason != IS_VM or each not in vms}


def _address(connection: Connection) -> str:
    """Return host, port and jump host of a worker. Return '' for a Slurm node: allocations share it by design."""
    if connection.allocation:
        return ""
    return f"{connection.host.lower()} {connection.port or 22} {connection.proxy_jump}"


def remove_worker(draft: Draft, worker_id: WorkerId, reason: str) -> None:
    """Forget a worker, or drain it if it has live attempts."""
    worker = draft.cluster.workers[worker_id]
    if not worker.claims:
        draft.record(events.WorkerForgotten(worker=worker_id, reason=reason))
    elif not worker.draining:
        draft.record(events.WorkerDrained(worker=worker_id, reason=reason))


def hold_until_complete(draft: Draft, worker_id: WorkerId) -> None:
    """Drain a VM until its slice is complete, even if the operator registered it again or uncordoned it."""
    known = draft.cluster.slices.get(slice_of(worker_id))
    if known is not None and known.is_provisioning:
        draft.record(events.WorkerDrained(worker=worker_id, reason=INCOMPLETE))


def record_silence(
    draft: Draft, silence: Silence, limits: Limits, *, sent_at: float | None = None, launching: bool = False
) -> None:
    """Record a call without an answer, and the back-off of the worker.

    After a failed dispatch (`launching`) there is no back-off yet, so that the next cycle polls the worker. Any other
    call that was sent (`sent_at`) before the last recorded silence is ignored.
    """
    worker = draft.cluster.workers[silence.worker]
    launching = launching and silence.kind in _TEMPORARY_FAILURES
    last = worker.unwell.last if worker.unwell is not None else None
    if not launching and sent_at is not None and last is not None and sent_at < last <= draft.at:
        return  # a silence was recorded since; a record in the future does not count: a clock was wrong
    failed = worker.failed_polls + (not launching)
    condition = _condition_after(worker, silence, failed, draft.at, limits)
    until = 0.0 if launching else draft.at + limits.backoff(failed)
    _change(draft, worker, silence.problem, condition, failed=failed, until=until)


def _change(
    draft: Draft,
    worker: Worker,
    reason: str,
    condition: WorkerCondition | None = None,
    *,
    failed: int | None = None,
    until: float,
) -> None:
    """Record a cool-down, by default without a change of the condition and the number of failed polls."""
    change = events.WorkerConditionChanged(
        worker=worker.id,
        condition=condition or worker.condition,
        reason=reason,
        failed_polls=worker.failed_polls if failed is None else failed,
        cooldown_until=round(until, 3),
    )
    draft.record(change)


def record_recovery(draft: Draft, worker_id: WorkerId) -> None:
    """Record that the worker answers with its known identity."""
    worker = draft.cluster.workers[worker_id]
    if worker.condition is not WorkerCondition.HEALTHY or worker.failed_polls:
        draft.record(events.WorkerConditionChanged(worker=worker_id, condition=WorkerCondition.HEALTHY))


def require_probes(draft: Draft) -> None:
    """Record that each worker needs a probe before it gets tasks, because lines of the log were lost."""
    reason = "lines of the log were lost: a probe will show what is running"
    for worker in draft.cluster.workers.values():
        if worker.incarnation and worker.condition is not WorkerCondition.UNPROBED:
            _change(draft, worker, reason, WorkerCondition.UNPROBED, failed=0, until=0.0)


def distrust(draft: Draft, worker_id: WorkerId, reason: str, limits: Limits) -> None:
    """Record that the answering host may be another machine. It gets no tasks, and no resources are released."""
    worker = draft.cluster.workers[worker_id]
    failed = worker.failed_polls + 1
    until = draft.at + limits.backoff(failed)
    _change(draft, worker, reason, WorkerCondition.UNTRUSTED, failed=failed, until=until)


def record_refusal(draft: Draft, worker_id: WorkerId, error: str, limits: Limits) -> None:
    """Record a refused attempt. The worker cools down; after several consecutive refusals it is quarantined."""
    worker = draft.cluster.workers[worker_id]
    _change(draft, worker, error, until=draft.at + limits.backoff(worker.refusals))
    if worker.refusals >= limits.quarantine_after and not worker.quarantined:
        reason = f"refused {worker.refusals} launches in a row, last: {error}"
        draft.record(events.WorkerQuarantined(worker=worker_id, reason=reason))


def record_preemption(draft: Draft, worker_id: WorkerId, seconds_ago: float, limits: Limits) -> None:
    """Record that the end of a worker's VM was announced `seconds_ago`. The worker cools down for the maximum back-off.

    If the VM still answers after the cool-down, the announced event was no preemption.
    """
    worker = draft.cluster.workers[worker_id]
    until = round(draft.at - seconds_ago + limits.backoff_max, 3)
    if worker.condition is WorkerCondition.HEALTHY and until > max(draft.at, worker.cooldown_until):
        _change(draft, worker, VM_IS_PREEMPTED, until=until)


def record_unkillable(draft: Draft, worker_id: WorkerId) -> None:
    """Quarantine a worker with an unkillable process until the operator has repaired it."""
    if not draft.cluster.workers[worker_id].quarantined:
        draft.record(events.WorkerQuarantined(worker=worker_id, reason=_UNKILLABLE.format(worker_id)))


def lift_old_quarantine(draft: Draft, worker_id: WorkerId, limits: Limits) -> None:
    """Lift an old quarantine after a successful probe, unless an attempt is stopping or a ghost may still run."""
    worker = draft.cluster.workers[worker_id]
    states = [attempt.state for _, attempt in draft.cluster.live_attempts_on(worker_id)]
    stuck = AttemptState.STOPPING in states or worker_id in draft.cluster.ghosts
    if is_quarantine_over(worker, draft.at, limits) and not stuck and not worker.unschedulable:
        draft.record(events.WorkerQuarantined(worker=worker_id, reason="", lifted=True))


def is_quarantine_over(worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether a quarantine is old enough to be lifted, or began in the future, because a clock was wrong."""
    return worker.quarantined and not 0 <= now - worker.quarantined_at < limits.quarantine_retry


def is_backing_off(cluster: Cluster, worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether the worker must not be called now. A healthy worker is always polled, also in a cool-down."""
    if worker.condition is WorkerCondition.HEALTHY or not is_cooling_down(worker, now, limits):
        return False
    last = worker.unwell.last if worker.unwell is not None else now
    return now - last < limits.backoff_first or not _is_awaited_for_verdict(cluster, worker, now, limits)


def _is_awaited_for_verdict(cluster: Cluster, worker: Worker, now: float, limits: Limits) -> bool:
    """Return whether a verdict waits for this silent worker."""
    return worker.condition in (WorkerCondition.SUSPECT, WorkerCondition.LOST) and any(
        attempt.stop is not None
        and attempt.stop.reason is EndReason.SIBLING
        and 0 <= now - attempt.stop.at < limits.settle_seconds
        for attempt_id, attempt in cluster.live_attempts_on(worker.id)
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
    is_long = worker.silent_since is not None and now - worker.silent_since >= limits.worker_lost_after
    if silence.kind in SILENT and is_long and failed >= _LOST_AFTER_POLLS:
        return WorkerCondition.LOST
    return WorkerCondition.LOST if worker.condition is WorkerCondition.LOST else WorkerCondition.SUSPECT


_MIN_SKEW_CHANGE = 5.0  # seconds
_RESOLUTION = 1.0  # seconds: workers report their clocks in whole seconds


def record_clock(draft: Draft, worker_id: WorkerId, clock: float, sent_at: float, received_at: float) -> None:
    """Record a worker's clock skew if the times of a call prove that it changed. `clock` is 0 if unknown."""
    if not clock or worker_id not in draft.cluster.workers:
        return
    lowest, highest = clock - received_at, clock + _RESOLUTION - sent_at
    known = draft.cluster.workers[worker_id].skew
    if not lowest - _MIN_SKEW_CHANGE <= known <= highest + _MIN_SKEW_CHANGE:
        skew = float(round(min(max(0.0, lowest), highest)))
        draft.record(events.WorkerSkewChanged(worker=worker_id, skew=skew))
