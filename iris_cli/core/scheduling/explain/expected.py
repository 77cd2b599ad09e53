"""Estimate the earliest start of a pending job that only tasks with time limits block, by simulated cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import partial

from msgspec import Struct

from iris_cli.core import AttemptId, AttemptState, Cluster, Job, JobId
from iris_cli.core.scheduling.explain.explanation import CycleRecord, without_claims
from iris_cli.core.scheduling.reasons import BUSY_KINDS, Reason


class ExpectedStart(Struct, frozen=True, kw_only=True):
    """The estimated start: the time when the tasks of `jobs` end, if they run until their time limits.

    `not_before_at` is in seconds since the epoch.
    """

    not_before_at: float
    jobs: tuple[JobId, ...]


def expected_start(
    record: CycleRecord, job: Job, reasons: Iterable[Reason], cluster: Cluster
) -> ExpectedStart | None:
    """Return the expected start of one more task of a job, or of a gang; None if it can't be known.

    It can't be known if a task without a time limit is in the way, or if jobs ahead would take the room.
    """
    if any(reason.kind not in BUSY_KINDS for reason in reasons):
        return None
    claims = {attempt for worker in record.workers for attempt in worker.claims}
    ends = {attempt: _end_by_limit(cluster, attempt) for attempt in claims}
    times = sorted({end for end in ends.values() if end is not None and end > record.now})

    def fits_at(time: float, *, at_best: bool) -> bool:
        """Return whether the task or gang fits when all attempts with an earlier time limit have ended.

        `at_best`: assume that all attempts without a time limit have ended, too, and that no job is ahead.
        """

        def has_ended(attempt: AttemptId) -> bool:
            end = ends[attempt]
            return at_best if end is None else end <= time

        workers = [without_claims(worker, has_ended) for worker in record.workers]
        return record.places_more(job, workers, alone=at_best)

    if not times or fits_at(record.now, at_best=True):
        return None
    found = bisect_left(times, True, key=partial(fits_at, at_best=True))
    if found == len(times) or not fits_at(times[found], at_best=False):
        return None
    last = sorted({attempt.task.job for attempt, end in ends.items() if end == times[found]})
    return ExpectedStart(not_before_at=times[found], jobs=tuple(last))


def _end_by_limit(cluster: Cluster, attempt_id: AttemptId) -> float | None:
    """Return the time at which the time limit ends an attempt, or None. An attempt that exceeds it is not retried."""
    attempt, limit = cluster.attempt(attempt_id), cluster.jobs[attempt_id.task.job].timeout
    if attempt.state is not AttemptState.RUNNING or attempt.started_at is None or attempt.orphaned:
        return None  # no wrapper enforces its limit
    return attempt.started_at + limit if limit > 0 else None
