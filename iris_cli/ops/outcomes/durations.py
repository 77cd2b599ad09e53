"""How long attempts and jobs ran: by the records of their workers, wherever a worker reported it.

Times that this machine wrote are compared only where no worker did: its clock may have been set in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iris_cli.core import Attempt, Ended, Job, Task

_Span = tuple[float, float]

FRESH = 600.0
"""Seconds for which the failure of a job is news, and stands above what runs."""


def elapsed(start: float | None, end: float | None, now: float) -> float | None:
    """Seconds from start to end, or till now. Clocks step back; durations don't."""
    return None if start is None else max(0.0, round((now if end is None else end) - start, 3))


def attempt_ran(attempt: Attempt, now: float) -> float | None:
    """Seconds that the command of an attempt ran, until `now` if it has not ended; None if it never started."""
    reported = _reported(attempt)
    if reported is not None:
        return reported
    return elapsed(attempt.started_at, attempt.end.at if attempt.end is not None else None, now)


def job_ran(job: Job, tasks: Sequence[Task], now: float) -> float | None:
    """Seconds for which at least one task of a job ran, until `now` if it is open; None if none ever started.

    The time between two attempts does not count. The ranks of a gang run together: the longest one counts. As
    long as no worker has reported a duration, it is the time from the first start to the end of the job, or `now`.
    """
    attempts = [each for task in tasks for each in task.attempts]
    starts = [at for each in attempts if (at := each.started_at) is not None]
    if not starts:
        return None
    if all(type(each.phase) is not Ended or _reported(each) is None for each in attempts):
        return elapsed(min(starts), job.end.at if job.end is not None else None, now)
    spans = [[_span(each, job, now) for each in task.attempts] for task in tasks]
    longest = max(sum(end - start for start, end in each) for each in spans)
    return round(
        longest if job.is_gang else max(longest, _covered(span for each in spans for span in each)), 3
    )


def _reported(attempt: Attempt) -> float | None:
    """The seconds that its worker reported at its end, if it did."""
    end = attempt.end
    if end is None or end.ran is None or attempt.started_at is None:
        return None
    return max(0.0, end.ran)


def _span(attempt: Attempt, job: Job, now: float) -> _Span:
    """Start and end of an attempt by this machine's clock: as far apart as its worker says, if it says so.

    Otherwise it lasts until the end of its job at most: what may run on, unreachable, is no work of the job.
    """
    until = now if job.end is None else job.end.at
    end = until if attempt.end is None else attempt.end.at
    reported = _reported(attempt)
    if reported is not None:
        return end - reported, end
    end = end if job.end is None else min(end, until)
    return end if attempt.started_at is None else min(attempt.started_at, end), end


def _covered(spans: Iterable[_Span]) -> float:
    """The seconds that lie in at least one of these spans."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered
