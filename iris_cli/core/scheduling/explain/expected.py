"""Estimate the earliest start of a pending job that only tasks with time limits block, by simulated cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from copy import copy

from msgspec import Struct

from iris_cli.core import AttemptId, AttemptState, Cluster, Job, JobId, Worker
from iris_cli.core.scheduling.explain.explanation import CycleRecord
from iris_cli.core.scheduling.reasons import Reason, ReasonKind

TimeLimits = Callable[[AttemptId], float | None]
"""Function that returns the time, in seconds since the epoch, at which an attempt's time limit ends it; None: no
limit."""

_BUSY = frozenset((ReasonKind.CHIPS, ReasonKind.GPUS, ReasonKind.MEMORY, ReasonKind.CPU))


class ExpectedStart(Struct, frozen=True, kw_only=True):
    """The estimated start: the time when the tasks of `jobs` end, if they run until their time limits.

    `not_before_at` is in seconds since the epoch.
    """

    not_before_at: float
    jobs: tuple[JobId, ...]


def time_limits(cluster: Cluster) -> TimeLimits:
    """Return the function for the ends of running attempts. An attempt that exceeds its time limit is not retried."""

    def end_of(attempt_id: AttemptId) -> float | None:
        attempt, limit = cluster.attempt(attempt_id), cluster.jobs[attempt_id.task.job].timeout
        if attempt.state is not AttemptState.RUNNING or attempt.started_at is None or attempt.orphaned:
            return None  # no wrapper enforces its limit
        return attempt.started_at + limit if limit > 0 else None

    return end_of


def expected_start(
    record: CycleRecord, job: Job, reasons: Iterable[Reason], limits: TimeLimits, now: float
) -> ExpectedStart | None:
    """Return the expected start of one more task of a job, or of a gang; None if it can't be known.

    It can't be known if a task without a time limit is in the way, or if jobs ahead would take the room.
    """
    if any(reason.kind not in _BUSY for reason in reasons):
        return None
    claims = {attempt for worker in record.workers for attempt in worker.claims}
    ends = {attempt: limits(attempt) for attempt in claims}
    times = sorted({end for end in ends.values() if end is not None and end > now})

    def at_best(time: float) -> bool:  # even if all attempts without a limit have ended and no job is ahead
        return record.more_placed(
            job, _without(record.workers, _ended(ends, time, unlimited=True)), alone=True
        )

    if not times or at_best(now):
        return None
    found = bisect_left(times, True, key=at_best)
    if found == len(times):
        return None
    at = times[found]
    workers = _without(record.workers, _ended(ends, at, unlimited=False))
    if not record.more_placed(job, workers, alone=False):
        return None
    last = sorted({attempt.task.job for attempt, end in ends.items() if end == at})
    return ExpectedStart(not_before_at=at, jobs=tuple(last))


def _ended(ends: Mapping[AttemptId, float | None], time: float, *, unlimited: bool) -> frozenset[AttemptId]:
    """Return the attempts that have ended at `time`. `unlimited`: also all attempts without a time limit."""
    return frozenset(attempt for attempt, end in ends.items() if (unlimited if end is None else end <= time))


def _without(workers: Iterable[Worker], ended: frozenset[AttemptId]) -> list[Worker]:
    found = []
    for worker in workers:
        claims = {attempt: claim for attempt, claim in worker.claims.items() if attempt not in ended}
        if len(claims) < len(worker.claims):
            worker = copy(worker)
            worker.claims = claims
        found.append(worker)
    return found
