"""`lease`: a task whose wrapper stops it when nobody asked about it for so long. Then silence is proof, after a while.

A poll renews the leases on its worker only if the worker was healthy in the log when that was last read, at most
`dispatch_lease` before. So the last poll that can have renewed one was sent within that time after the first failed
poll on record: by somebody who had read the log just before that was written.
"""

from __future__ import annotations

from iris_cli.core.events.events import AttemptPresumedGone
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId
from iris_cli.core.lifecycle import attempts
from iris_cli.core.model.job import Job
from iris_cli.core.model.limits import MOST_EXTRA_TIME, Limits
from iris_cli.core.model.outcome import End, EndReason
from iris_cli.core.model.task import Attempt
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.units import format_duration

MARGIN = 60.0
"""For clocks that run unevenly, and for a worker that takes its time with the stop."""


def may_renew(worker: Worker, age: float, limits: Limits) -> bool:
    """Whether a poll of this worker renews leases. The state that it goes by was read `age` seconds ago.

    By the clock that says more: a process that was suspended must not renew what others believe to have ended.
    """
    return worker.condition is WorkerCondition.HEALTHY and 0 <= age <= limits.dispatch_lease


def settle(draft: Draft, limits: Limits) -> list[JobId]:
    """End the attempts whose lease must have ended by now; returns their jobs, which are to be settled."""
    over = [
        attempt_id
        for worker in draft.cluster.workers.values()
        if worker.unwell is not None
        for attempt_id, attempt in draft.cluster.live_on(worker.id)
        if _is_over(draft.cluster.jobs[attempt_id.task.job], attempt, worker, limits)
    ]
    for attempt_id in over:
        worker, job = draft.cluster.attempt(attempt_id).worker, draft.cluster.jobs[attempt_id.task.job]
        error = f"its lease of {format_duration(job.lease)} ended while {worker} was out of reach"
        # The wrapper and its watchdog may have been killed meanwhile: what they should have stopped is a ghost.
        draft.record(AttemptPresumedGone(task=attempt_id.task, attempt=attempt_id.number, by_lease=True))
        attempts.ended(draft, attempt_id, End(reason=EndReason.WORKER_FAILED, at=draft.at, error=error))
    return [attempt_id.task.job for attempt_id in over]


def _is_over(job: Job, attempt: Attempt, worker: Worker, limits: Limits) -> bool:
    """Proof, and nothing less: of the time that was watched the longest step doesn't count at all.

    A clock may have jumped there, or this machine have slept with a renewing poll half sent.
    """
    watched_over = job.lease > 0 and attempt.started_at is not None
    if not watched_over or attempt.orphaned or attempt.unkillable or worker.unwell is None:
        return False
    longest_call = limits.connect_timeout + limits.dispatch_timeout + MOST_EXTRA_TIME
    last_renewal = limits.dispatch_lease + longest_call
    return worker.unwell.at_least() >= last_renewal + job.lease + job.grace + MARGIN
