"""Identity of workers: one machine in one boot. Ghosts of attempts presumed dead remain until proven gone."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core import AttemptState, Cluster, EndReason, Limits, Worker, WorkerCondition
from iris_cli.core.constraints import TPU_NAME_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY
from iris_cli.core.events.events import AttemptPresumedGone, AttemptProvenGone, WorkerForgotten, WorkerUpdated
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.lifecycle import attempts, jobs, workers
from iris_cli.core.messages.observations import OVER, AttemptReport, RemoteState, WorkerReport


def answered(draft: Draft, report: WorkerReport, limits: Limits) -> bool:
    """Check the sender of an answer. Return whether it is the worker in the log, in the same boot."""
    worker = draft.cluster.workers[report.worker]
    if not worker.incarnation or worker.condition is WorkerCondition.UNPROBED:
        return False  # no identity to compare with yet, or a probe comes first
    if report.incarnation != worker.incarnation or _is_untold(worker, report.boot_id):
        workers.untrusted(draft, worker.id, _doubt(worker, report.boot_id), limits)
        return False
    if report.boot_id != worker.boot_id:
        _rebooted(draft, worker, report)
        return False
    workers.recovered(draft, worker.id)
    return True


def probed(draft: Draft, found: WorkerUpdated, limits: Limits, *, trusted: bool = False) -> None:
    """Apply a probe. `trusted`: the operator accepts that it may be another machine.

    After a reboot the old boot id stays on record while attempts live on the worker: their ends may be on its
    disk, and a poll reads them. Until then the worker refuses every launch, which names the old boot.
    """
    worker = draft.cluster.workers[found.worker]
    known = bool(worker.incarnation)
    rebooted = known and found.boot_id != worker.boot_id
    replaced = known and found.incarnation != worker.incarnation
    untold = _is_untold(worker, found.boot_id)
    doubt = _doubt(worker, found.boot_id) if untold or (rebooted and replaced) else _moved(worker, found)
    if not known:
        doubt = elsewhere(draft.cluster, worker.id, found.boot_id, found.incarnation)
    if doubt and not trusted:
        return workers.untrusted(draft, worker.id, doubt, limits)
    if rebooted and replaced:
        release(draft, worker.id, "the host was re-created")
    elif rebooted and worker.claims:
        found = _of_boot(found, worker.boot_id)
    elif replaced:
        _fence(draft, worker.id)
    if found != _recorded(draft.cluster.workers[worker.id]):
        draft.record(found)
    gone_by_reboot(draft, worker.id)
    workers.recovered(draft, worker.id)
    return workers.requalified(draft, worker.id, limits)


def release(draft: Draft, worker_id: WorkerId, error: str) -> None:
    """End every attempt on a worker that is proven gone."""
    for attempt_id, _ in list(draft.cluster.live_on(worker_id)):
        attempts.worker_gone(draft, attempt_id, error)


def _fence(draft: Draft, worker_id: WorkerId) -> None:
    """Stop the attempts that a host of the same boot has forgotten: their processes may still run."""
    for attempt_id, attempt in list(draft.cluster.live_on(worker_id)):
        if attempt.state is not AttemptState.STOPPING:
            started = attempt.started_at is not None
            reason = EndReason.WORKER_FAILED if started else EndReason.DISPATCH_FAILED
            jobs.stop(draft, attempt_id, reason)


def _is_untold(worker: Worker, boot_id: str) -> bool:
    """Return whether a host that reported its boot id before can't any more: that proves nothing."""
    return bool(worker.boot_id) and not boot_id


def _doubt(worker: Worker, boot_id: str) -> str:
    if _is_untold(worker, boot_id):
        return "its boot id can't be read"
    if boot_id == worker.boot_id:
        return "its iris directory was removed or replaced since the last probe"
    return "different boot and incarnation: the host may have been re-created"


def _moved(worker: Worker, found: WorkerUpdated) -> str:
    """Return why the host can't be the one probed before, or "" if the configuration changed or nothing differs."""
    if worker.vm and found.vm and found.vm != worker.vm:
        return f"its VM was {worker.vm} and is now {found.vm}"
    if found.declared != worker.declared:
        return ""
    for key in (TPU_NAME_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY):
        before, now = worker.attributes.get(key), found.attributes.get(key)
        if before is not None and now != before:
            return f"its {key} was {before}, now {now if now is not None else 'gone'}"
    return ""


def _rebooted(draft: Draft, worker: Worker, report: WorkerReport) -> None:
    """End the old boot's attempts if this answer covers them all; else the worker is polled for the rest first."""
    said = {each.token: each for each in report.attempts}
    live = list(draft.cluster.live_on(worker.id))
    if any(attempt.token not in said for _, attempt in live):
        return
    for attempt_id, attempt in live:
        attempts.outlasted(draft, attempt_id, said[attempt.token], "the host was rebooted")
    draft.record(_of_boot(_recorded(worker), report.boot_id))
    gone_by_reboot(draft, worker.id)
    workers.recovered(draft, worker.id)


def _of_boot(found: WorkerUpdated, boot_id: str) -> WorkerUpdated:
    """Return the same properties with another boot id."""
    return WorkerUpdated(
        worker=found.worker,
        connection=found.connection,
        attributes=found.attributes,
        cpu=found.cpu,
        memory=found.memory,
        chips=found.chips,
        gpus=found.gpus,
        boot_id=boot_id,
        incarnation=found.incarnation,
        declared=found.declared,
        containment=found.containment,
        vm=found.vm,
        refusal=found.refusal,
    )


def _recorded(worker: Worker) -> WorkerUpdated:
    """Return the properties of a worker as recorded in the log."""
    return WorkerUpdated(
        worker=worker.id,
        connection=worker.connection,
        attributes=worker.own_attributes,
        cpu=worker.cpu,
        memory=worker.memory,
        chips=worker.chips,
        gpus=worker.gpus,
        boot_id=worker.boot_id,
        incarnation=worker.incarnation,
        declared=worker.declared,
        containment=worker.containment,
        vm=worker.vm,
        refusal=worker.reason if worker.unschedulable else "",
    )


def presume_gone(draft: Draft, attempt_ids: Iterable[AttemptId], error: str) -> None:
    """Presume attempts dead: their resources are released, and they are kept as ghosts."""
    for attempt_id in attempt_ids:
        draft.record(AttemptPresumedGone(task=attempt_id.task, attempt=attempt_id.number))
        attempts.worker_gone(draft, attempt_id, error)


def declared_dead(draft: Draft, worker: WorkerId, error: str) -> None:
    """Presume all attempts on a worker dead, including unkillable ones, because the operator asserts it."""
    presume_gone(draft, [attempt_id for attempt_id, _ in draft.cluster.live_on(worker)], error)


def machine_gone(draft: Draft, worker_id: WorkerId, error: str) -> list[AttemptId]:
    """End everything on a machine proven gone, and forget the worker. Return the ended attempts."""
    is_known = worker_id in draft.cluster.workers
    ended = [attempt_id for attempt_id, _ in draft.cluster.live_on(worker_id)] if is_known else []
    for attempt_id in ended:
        attempts.worker_gone(draft, attempt_id, error)
    for ghost in draft.cluster.ghosts.get(worker_id, ()):
        _proven_gone(draft, ghost.attempt)
    if is_known:
        draft.record(WorkerForgotten(worker=worker_id, reason=error))
    return ended


def reported(draft: Draft, worker: WorkerId, reports: Iterable[AttemptReport]) -> None:
    """Apply a worker's report on its ghosts: ended ones are gone; an unkillable one quarantines the worker."""
    said = {report.token: report.state for report in reports}
    for ghost in draft.cluster.ghosts.get(worker, ()):
        state = said.get(ghost.token)
        if state in OVER:
            _proven_gone(draft, ghost.attempt)
        elif state is RemoteState.UNKILLABLE:
            workers.unkillable(draft, worker)


def gone_by_reboot(draft: Draft, worker_id: WorkerId) -> None:
    """End the ghosts of earlier boots: they did not survive the reboot."""
    boot_id = draft.cluster.workers[worker_id].boot_id
    for ghost in draft.cluster.ghosts.get(worker_id, ()):
        if ghost.boot_id and ghost.boot_id != boot_id:
            _proven_gone(draft, ghost.attempt)


def elsewhere(cluster: Cluster, worker: WorkerId, boot_id: str, incarnation: str) -> str:
    """Return why a worker that is new to the log can't prove the end of the ghosts under its name, or ""."""
    strange = [
        str(ghost.attempt)
        for ghost in cluster.ghosts.get(worker, ())
        if ghost.incarnation and ghost.incarnation != incarnation and ghost.boot_id != boot_id
    ]
    if not strange:
        return ""
    return (
        f"{', '.join(strange)} may still run on another host: this one has a different boot and incarnation"
    )


def haunted_words(cluster: Cluster, worker: WorkerId) -> str:
    """Return why a worker accepts no new work because of its ghosts, in a sentence; "" without ghosts."""
    ghosts = cluster.ghosts.get(worker, ())
    if not ghosts:
        return ""
    names = ", ".join(str(ghost.attempt) for ghost in ghosts)
    return f"two copies may run: {names} presumed dead; stopped first when {worker} answers"


def _proven_gone(draft: Draft, attempt: AttemptId) -> None:
    draft.record(AttemptProvenGone(task=attempt.task, attempt=attempt.number))
