"""The identity of workers (machine, directory and boot), and its effect on attempts and ghosts."""

from collections.abc import Iterable

from iris_cli.core import AttemptId, Cluster, Limits, Worker, WorkerCondition, WorkerId
from iris_cli.core.constraints import TPU_NAME_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY
from iris_cli.core.events.events import AttemptPresumedGone, AttemptProvenGone, WorkerForgotten, WorkerUpdated
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.messages.observations import FINAL_STATES, AttemptReport, RemoteState, WorkerReport


def check_identity(draft: Draft, report: WorkerReport, limits: Limits) -> bool:
    """Check the sender of an answer. Return whether the sender is the recorded worker on the same boot."""
    worker = draft.cluster.workers[report.worker]
    if not worker.incarnation or worker.condition is WorkerCondition.UNPROBED:
        return False  # a probe must first record or confirm the identity
    if report.incarnation != worker.incarnation or _lacks_boot_id(worker, report.boot_id):
        workers.distrust(draft, worker.id, _doubt_reason(worker, report.boot_id), limits)
        return False
    if report.boot_id != worker.boot_id:
        _apply_reboot(draft, worker, report)
        return False
    workers.record_recovery(draft, worker.id)
    return True


def apply_probe(draft: Draft, found: WorkerUpdated, limits: Limits, *, trusted: bool = False) -> None:
    """Apply a probe. `trusted`: the operator accepts that the host may be another machine.

    After a reboot, the old boot id stays recorded until a poll has read the ends of the worker's attempts from its
    disk. Until then, dispatches contain the old boot id, so the worker refuses them.
    """
    worker = draft.cluster.workers[found.worker]
    has_identity = bool(worker.incarnation)
    rebooted = has_identity and found.boot_id != worker.boot_id
    replaced = has_identity and found.incarnation != worker.incarnation
    unreadable = _lacks_boot_id(worker, found.boot_id)
    doubt = _why_another_host(worker, found)
    if unreadable or (rebooted and replaced):
        doubt = _doubt_reason(worker, found.boot_id)
    if not has_identity:
        doubt = why_ghosts_may_live(draft.cluster, worker.id, found.boot_id, found.incarnation)
    if doubt and not trusted:
        return workers.distrust(draft, worker.id, doubt, limits)
    if rebooted and replaced:
        end_attempts_on(draft, worker.id, f"host {worker.id} was re-created")
    elif rebooted and worker.claims:
        found = _with_boot_id(found, worker.boot_id)
    elif replaced:
        stop_attempts(draft, worker.id)
    if found != _recorded_properties(draft.cluster.workers[worker.id]):
        draft.record(found)
    end_ghosts_of_earlier_boots(draft, worker.id)
    workers.record_recovery(draft, worker.id)
    return workers.lift_old_quarantine(draft, worker.id, limits)


def end_attempts_on(draft: Draft, worker_id: WorkerId, error: str) -> list[AttemptId]:
    """Record the end of every attempt on a worker that is proven gone. Return the ended attempts."""
    ended = list(draft.cluster.workers[worker_id].claims)
    for attempt_id in ended:
        attempts.end_with_worker(draft, attempt_id, error)
    return ended


def stop_attempts(draft: Draft, worker_id: WorkerId) -> None:
    """Order the stop of the attempts on a host whose iris directory was lost, or that must not run them any more."""
    for attempt_id in list(draft.cluster.workers[worker_id].claims):
        attempts.fence_unproven(draft, attempt_id)


def _lacks_boot_id(worker: Worker, boot_id: str) -> bool:
    """Return whether a host no longer reports a boot id. A missing id does not prove a reboot."""
    return bool(worker.boot_id) and not boot_id


def _doubt_reason(worker: Worker, boot_id: str) -> str:
    if _lacks_boot_id(worker, boot_id):
        return "its boot id can't be read"
    if boot_id == worker.boot_id:
        return "its iris directory was removed or replaced since the last probe"
    return "different boot and incarnation: the host may have been re-created"


def _why_another_host(worker: Worker, found: WorkerUpdated) -> str:
    """Return why the host differs from the host of the last probe; "" if it may be the same host.

    After a change of the configuration only the VM's id is compared, because the attributes may differ, too.
    """
    if worker.vm and found.vm and found.vm != worker.vm:
        return f"its VM was {worker.vm} and is now {found.vm}"
    if found.declared != worker.declared:
        return ""
    for key in (TPU_NAME_ATTRIBUTE_KEY, TPU_WORKER_ID_ATTRIBUTE_KEY):
        before, now = worker.attributes.get(key), found.attributes.get(key)
        if before is not None and now != before:
            return f"its {key} was {before}, now {now if now is not None else 'gone'}"
    return ""


def _apply_reboot(draft: Draft, worker: Worker, report: WorkerReport) -> None:
    """Record a reboot and the end of all earlier attempts, if this answer reports on all of these attempts."""
    reports = {each.token: each for each in report.attempts}
    live = list(draft.cluster.live_attempts_on(worker.id))
    if any(attempt.token not in reports for _, attempt in live):
        return
    for attempt_id, attempt in live:
        error = f"host {worker.id} was rebooted"
        attempts.apply_earlier_boot(draft, attempt_id, reports[attempt.token], error)
    draft.record(_with_boot_id(_recorded_properties(worker), report.boot_id))
    end_ghosts_of_earlier_boots(draft, worker.id)
    workers.record_recovery(draft, worker.id)


def _with_boot_id(found: WorkerUpdated, boot_id: str) -> WorkerUpdated:
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


def _recorded_properties(worker: Worker) -> WorkerUpdated:
    return WorkerUpdated(
        worker=worker.id,
        connection=worker.connection,
        attributes=worker.attributes_without_taints,
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
    """Record attempts as presumed gone: they become ghosts, and their resources are free."""
    for attempt_id in attempt_ids:
        draft.record(AttemptPresumedGone(task=attempt_id.task, attempt=attempt_id.number))
        attempts.end_with_worker(draft, attempt_id, error)


def remove_machine(draft: Draft, worker_id: WorkerId, error: str) -> list[AttemptId]:
    """Record the proof that a machine is gone, with all its attempts and ghosts. Return the ended attempts."""
    is_known = worker_id in draft.cluster.workers
    ended = end_attempts_on(draft, worker_id, error) if is_known else []
    for ghost in draft.cluster.ghosts.get(worker_id, ()):
        _record_proven_gone(draft, ghost.attempt)
    if is_known:
        draft.record(WorkerForgotten(worker=worker_id, reason=error))
    return ended


def apply_ghost_reports(draft: Draft, worker: WorkerId, reports: Iterable[AttemptReport]) -> None:
    """Apply a worker's reports on its ghosts: remove ended ghosts; quarantine the worker if a ghost is unkillable."""
    states = {report.token: report.state for report in reports}
    for ghost in draft.cluster.ghosts.get(worker, ()):
        state = states.get(ghost.token)
        if state in FINAL_STATES:
            _record_proven_gone(draft, ghost.attempt)
        elif state is RemoteState.UNKILLABLE:
            workers.record_unkillable(draft, worker)


def end_ghosts_of_earlier_boots(draft: Draft, worker_id: WorkerId) -> None:
    """Record that the ghosts of earlier boots are gone, because no process survives a reboot."""
    boot_id = draft.cluster.workers[worker_id].boot_id
    for ghost in draft.cluster.ghosts.get(worker_id, ()):
        if ghost.boot_id and ghost.boot_id != boot_id:
            _record_proven_gone(draft, ghost.attempt)


def why_ghosts_may_live(cluster: Cluster, worker: WorkerId, boot_id: str, incarnation: str) -> str:
    """Return why the ghosts recorded for this worker may run on another host; "" if its first probe rules that out."""
    unproven = [
        str(ghost.attempt)
        for ghost in cluster.ghosts.get(worker, ())
        if ghost.incarnation and ghost.incarnation != incarnation and ghost.boot_id != boot_id
    ]
    if not unproven:
        return ""
    return f"{', '.join(unproven)} may still be running on another host: this one has a different boot and incarnation"


def ghost_warning(cluster: Cluster, worker: WorkerId) -> str:
    """Return the warning that ghosts on a worker may still run beside their retries; "" without ghosts."""
    ghosts = cluster.ghosts.get(worker, ())
    if not ghosts:
        return ""
    names = ", ".join(str(ghost.attempt) for ghost in ghosts)
    is_gone, pronoun = ("is presumed gone", "it") if len(ghosts) == 1 else ("are presumed gone", "them")
    return f"{names} {is_gone} but may still be running; iris stops {pronoun} when {worker} answers"


def _record_proven_gone(draft: Draft, attempt: AttemptId) -> None:
    draft.record(AttemptProvenGone(task=attempt.task, attempt=attempt.number))
