"""Presume attempts gone without proof, after a long silence of their worker or an expired lease."""

from collections.abc import Container, Iterable, Mapping

from iris_cli.core import Attempt, Cluster, End, EndReason, Job, JobId, ReplaceLost, WorkerId, format_duration
from iris_cli.core.constraints import PREEMPTIBLE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.events.events import AttemptPresumedGone, WorkerSilenceCounted
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, identity
from iris_cli.core.messages.observations import SILENT, ProbeReport, ReapReport, Silence, WorkerReport
from iris_cli.core.model.limits import MAX_EXTRA_TIME, Limits
from iris_cli.core.model.worker import Worker, WorkerCondition

Answer = WorkerReport | ProbeReport | ReapReport | Silence


def count_silences(
    draft: Draft, answers: Iterable[Answer], policies: Mapping[WorkerId, ReplaceLost], limits: Limits
) -> list[JobId]:
    """Record which workers were silent in a cycle. Presume attempts gone after a long silence, and return their jobs.

    `answers` are all answers to the polls of this cycle; the caller has applied them. `policies` are the workers'
    settings for `replace_lost`. The caller must then decide whether the returned jobs and their rounds have ended.
    """
    last_answers = {each.worker: each for each in answers if each.worker in draft.cluster.workers}
    answered = [worker for worker, answer in last_answers.items() if not isinstance(answer, Silence)]
    healthy = [each for each in map(draft.cluster.workers.__getitem__, answered) if _is_healthy(each)]
    connected = _is_connected(draft.cluster)
    affected: list[JobId] = []
    for worker_id, answer in last_answers.items():
        worker = draft.cluster.workers[worker_id]
        if _is_healthy(worker) or not worker.claims:
            continue
        is_silent = isinstance(answer, Silence) and answer.kind in SILENT
        counts = connected and (is_silent or worker.condition is WorkerCondition.UNTRUSTED)
        if not (counts and any(_is_in_another_slice(each, worker) for each in healthy)):
            if worker.silence is not None:
                draft.record(WorkerSilenceCounted(worker=worker_id, anew=True))
            continue
        draft.record(WorkerSilenceCounted(worker=worker_id))
        silence, needed = draft.cluster.workers[worker_id].silence, limits.worker_lost_after
        # The longest poll interval counts for at most half of the needed time.
        if silence is not None and silence.minimum(max_step=needed / 2) >= needed:
            policy = policies.get(worker_id, ReplaceLost.PREEMPTIBLE)
            affected += _presume_gone(draft, worker_id, policy, limits)
    return affected


def is_replaced(job: Job, worker: Worker, policy: ReplaceLost) -> bool:
    """Return whether a job's tasks are retried if this worker is lost. The job's setting overrides the worker's."""
    setting = job.replace_lost or policy
    preemptible = worker.attributes.get(PREEMPTIBLE_ATTRIBUTE_KEY) == AttributeValue("true")
    return setting is ReplaceLost.ALWAYS or (setting is ReplaceLost.PREEMPTIBLE and preemptible)


def choose_witnesses(cluster: Cluster, polled: Container[WorkerId]) -> list[WorkerId]:
    """Return further healthy workers to poll.

    The silence of a `polled` worker counts only if a worker that is not in its slice answers in the same cycle.
    """
    healthy = list(filter(_is_healthy, cluster.workers.values()))
    polled_witnesses = [worker for worker in healthy if worker.id in polled]
    extra: list[WorkerId] = []
    for silent in cluster.workers.values():
        if silent.id not in polled or _is_healthy(silent) or not silent.claims:
            continue
        if any(_is_in_another_slice(each, silent) for each in polled_witnesses):
            continue
        witness = next((each for each in healthy if _is_in_another_slice(each, silent)), None)
        if witness is not None:
            polled_witnesses.append(witness)
            extra.append(witness.id)
    return extra


def _presume_gone(draft: Draft, worker_id: WorkerId, policy: ReplaceLost, limits: Limits) -> list[JobId]:
    worker = draft.cluster.workers[worker_id]
    attempt_ids = [
        attempt_id
        for attempt_id, attempt in draft.cluster.live_attempts_on(worker_id)
        if not attempt.unkillable and is_replaced(draft.cluster.jobs[attempt_id.task.job], worker, policy)
    ]
    silent = format_duration(limits.worker_lost_after)
    identity.presume_gone(draft, attempt_ids, f"host {worker_id} was silent for over {silent}")
    return [attempt_id.task.job for attempt_id in attempt_ids]


def _is_healthy(worker: Worker) -> bool:
    return worker.condition is WorkerCondition.HEALTHY


def _is_connected(cluster: Cluster) -> bool:
    """Return whether fewer than half of the probed workers are silent. If not, this machine may be offline."""
    fleet = [worker for worker in cluster.workers.values() if worker.incarnation]
    answering = (WorkerCondition.HEALTHY, WorkerCondition.AUTH_FAILED)
    silent = [each for each in fleet if each.failed_polls > 0 and each.condition not in answering]
    return 2 * len(silent) < len(fleet)


def _is_in_another_slice(worker: Worker, other: Worker) -> bool:
    slice_name = worker.attributes.get(TPU_NAME_ATTRIBUTE_KEY)
    same_slice = slice_name is not None and slice_name == other.attributes.get(TPU_NAME_ATTRIBUTE_KEY)
    return worker.id != other.id and not same_slice


LEASE_MARGIN = 60.0  # seconds, because clocks differ in speed and stops take time


def may_renew_leases(worker: Worker, age: float, limits: Limits) -> bool:
    """Return whether a poll may renew leases: the log, read `age` seconds ago, is recent and the worker is healthy."""
    return _is_healthy(worker) and 0 <= age <= limits.dispatch_lease


def end_leases(draft: Draft, limits: Limits) -> list[JobId]:
    """Presume attempts gone whose lease must have expired. Return their jobs."""
    expired = [
        attempt_id
        for worker in draft.cluster.workers.values()
        if worker.unwell is not None
        for attempt_id, attempt in draft.cluster.live_attempts_on(worker.id)
        if _is_lease_expired(draft.cluster.jobs[attempt_id.task.job], attempt, worker, limits)
    ]
    for attempt_id in expired:
        worker, job = draft.cluster.attempt(attempt_id).worker, draft.cluster.jobs[attempt_id.task.job]
        error = f"its lease of {format_duration(job.lease)} expired while {worker} was unreachable"
        # If wrapper and watchdog were killed, the attempt may still run: it becomes a ghost.
        draft.record(AttemptPresumedGone(task=attempt_id.task, attempt=attempt_id.number, by_lease=True))
        attempts.end_attempt(draft, attempt_id, End(reason=EndReason.WORKER_FAILED, at=draft.at, error=error))
    return [attempt_id.task.job for attempt_id in expired]


def _is_lease_expired(job: Job, attempt: Attempt, worker: Worker, limits: Limits) -> bool:
    """Return whether the lease must have expired, even if a clock was changed during the longest poll interval."""
    has_lease = job.lease > 0 and attempt.started_at is not None
    if not has_lease or attempt.orphaned or attempt.unkillable or worker.unwell is None:
        return False
    longest_call = limits.connect_timeout + limits.dispatch_timeout + MAX_EXTRA_TIME
    last_renewal = limits.dispatch_lease + longest_call
    return worker.unwell.minimum() >= last_renewal + job.lease + job.grace + LEASE_MARGIN
