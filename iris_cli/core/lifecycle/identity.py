"""Who answered? A worker is one machine since one boot: what changes of that is proof, or reason for doubt."""

from __future__ import annotations

from dataclasses import replace

from iris_cli.core.events import AttemptStopped, TaskDispatchFailed, WorkerUpdated
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import WorkerId
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.limits import Limits
from iris_cli.core.observations import WorkerReport
from iris_cli.core.outcome import End, EndReason
from iris_cli.core.task import AttemptState
from iris_cli.core.worker import Worker


def answered(draft: Draft, report: WorkerReport, limits: Limits) -> bool:
    """A worker answered a poll or a call. Returns whether it is the one in the log, since the same boot."""
    worker = draft.cluster.workers[report.worker]
    doubt = _doubt(worker, report.boot_id, report.incarnation)
    if doubt:
        workers.untrusted(draft, worker.id, doubt, limits)
        return False
    if report.boot_id != worker.boot_id:
        _rebooted(draft, worker, report.boot_id)
        return False
    workers.recovered(draft, worker.id)
    return True


def probed(draft: Draft, found: WorkerUpdated, limits: Limits, *, trusted: bool = False) -> None:
    """A probe told what a worker is. `trusted`: the operator's word that it may be another machine now."""
    worker = draft.cluster.workers[found.worker]
    doubt = _doubt(worker, found.boot_id, found.incarnation)
    if doubt and not trusted:
        return workers.untrusted(draft, worker.id, doubt, limits)
    if worker.boot_id and found.boot_id != worker.boot_id:
        release(draft, worker.id, "the host was re-created" if doubt else "the host was rebooted")
    if found != _recorded(draft.cluster.workers[worker.id]):
        draft.record(found)
    return workers.recovered(draft, worker.id)


def release(draft: Draft, worker_id: WorkerId, error: str) -> None:
    """End every attempt on a worker that is proven gone. What was never acknowledged is not charged."""
    for attempt_id, attempt in list(draft.cluster.live_on(worker_id)):
        if attempt.state is AttemptState.STOPPING:
            draft.record(AttemptStopped(task=attempt_id.task, attempt=attempt_id.number))
        elif attempt.started_at is None:
            draft.record(TaskDispatchFailed(task=attempt_id.task, attempt=attempt_id.number, error=error))
        else:
            end = End(reason=EndReason.WORKER_FAILED, at=draft.at, error=f"{error} ({worker_id})")
            attempts.ended(draft, attempt_id, end)


def _doubt(worker: Worker, boot_id: str, incarnation: str) -> str:
    if not worker.incarnation or incarnation == worker.incarnation:
        return ""
    if boot_id == worker.boot_id:
        return "its iris directory was removed or replaced since the last probe"
    return "another boot and another incarnation: the host may have been re-created"


def _rebooted(draft: Draft, worker: Worker, boot_id: str) -> None:
    release(draft, worker.id, "the host was rebooted")
    draft.record(replace(_recorded(worker), boot_id=boot_id))
    workers.recovered(draft, worker.id)


def _recorded(worker: Worker) -> WorkerUpdated:
    """The last word of the log on what a worker is."""
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
        refusal=worker.reason if worker.unschedulable else "",
    )
