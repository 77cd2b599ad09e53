"""Durations of attempts and jobs, as their workers reported them.

This machine's clock is used only if no worker has reported a duration, because the clock may have been set.
"""

from collections.abc import Iterable, Sequence

from iris_cli.core import Attempt, Ended, Job, Task

_Span = tuple[float, float]

RECENT_FAILURE = 600.0  # seconds for which a failed job is listed above running jobs


def elapsed(start: float | None, end: float | None, now: float) -> float | None:
    """Return the seconds from `start` to `end` (None: `now`); None without a start, 0 if the clock was set back."""
    return None if start is None else max(0.0, round((now if end is None else end) - start, 3))


def first_start(tasks: Iterable[Task]) -> float | None:
    """Return the time of the first start of these tasks, or None."""
    starts = (each.started_at for task in tasks for each in task.attempts)
    return min((at for at in starts if at is not None), default=None)


def state_since(attempt: Attempt) -> float:
    """Return the time at which the attempt ended, was ordered to stop, started or was assigned, the latest of them."""
    if attempt.ended_at is not None:
        return attempt.ended_at
    if attempt.stop is not None:
        return attempt.stop.at
    return attempt.assigned_at if attempt.started_at is None else attempt.started_at


def attempt_ran(attempt: Attempt, now: float) -> float | None:
    """Return the seconds for which the command ran, until `now` if it still runs; None if it has not started."""
    reported = _reported(attempt)
    if reported is not None:
        return reported
    return elapsed(attempt.started_at, attempt.end.at if attempt.end is not None else None, now)


def attempt_ended_at(attempt: Attempt) -> float | None:
    """Return the time of an attempt's end, or None. The end of a stopped attempt is recorded when it is proven."""
    end, reported = attempt.end, _reported(attempt)
    if end is None or reported is None or attempt.started_at is None or attempt.stop is None:
        return end.at if end is not None else None
    return min(end.at, round(attempt.started_at + reported, 3))


def job_ran(job: Job, tasks: Sequence[Task], now: float) -> float | None:
    """Return the seconds during which a task was running, until `now` for an open job; None if no task has started.

    Time between attempts is not included. For a gang, return the time of the longest rank. If no worker has reported a
    duration yet, return the time from the first start to the end of the job or of its last attempt, or to `now`.
    """
    attempts = [each for task in tasks for each in task.attempts]
    start = first_start(tasks)
    if start is None:
        return None
    if all(type(each.phase) is not Ended or _reported(each) is None for each in attempts):
        ends = [each.ended_at for each in attempts if each.ended_at is not None]
        end = max(ends) if len(ends) == len(attempts) else None
        return elapsed(start, job.end.at if job.end is not None else end, now)
    spans = [[_span(each, job, now) for each in task.attempts] for task in tasks]
    longest = max(sum(end - start for start, end in each) for each in spans)
    return round(
        longest if job.is_gang else max(longest, total_length(span for each in spans for span in each)), 3
    )


def _reported(attempt: Attempt) -> float | None:
    """Return the duration in seconds that the worker reported with the attempt's end, or None."""
    end = attempt.end
    if end is None or end.ran is None or attempt.started_at is None:
        return None
    return max(0.0, end.ran)


def _span(attempt: Attempt, job: Job, now: float) -> _Span:
    """Return the start and end of an attempt by this machine's clock.

    If the worker reported a duration, the start is the end minus the duration. Otherwise the end is at most the end of
    the job, even if the attempt is unreachable and may still run.
    """
    until = now if job.end is None else job.end.at
    end = until if attempt.end is None else attempt.end.at
    reported = _reported(attempt)
    if reported is not None:
        return end - reported, end
    end = end if job.end is None else min(end, until)
    return end if attempt.started_at is None else min(attempt.started_at, end), end


def total_length(spans: Iterable[_Span]) -> float:
    """Return the total length of these spans in seconds. Time in several spans is counted once."""
    total, counted_until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, counted_until))
        counted_until = max(counted_until, end)
    return total
