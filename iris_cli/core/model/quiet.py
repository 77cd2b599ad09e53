"""Running tasks that have written nothing for a long time."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core.model.array import format_indexes
from iris_cli.core.model.job import Job
from iris_cli.core.model.task import AttemptState, Task
from iris_cli.core.units import count, format_duration

_COARSE = 60.0  # seconds from which on only minutes are shown


def quiet_for(seconds: float) -> str:
    """`quiet 42m`."""
    shown = seconds - seconds % _COARSE if seconds >= _COARSE else float(max(0, int(seconds)))
    return f"quiet {format_duration(shown)}"


def quiet_words(job: Job, tasks: Iterable[Task], now: float) -> str:
    """`quiet 42m` of a job with one running task, else `3 of 4 ranks quiet 42m: rank 2, then 0-1`; '' if none is quiet.

    The task that has been quiet longest is named first, and its time is shown.
    """
    running = {
        task.index: task.attempts[-1].quiet_since
        for task in tasks
        if task.attempts and task.attempts[-1].state is AttemptState.RUNNING
    }
    quiet = sorted((since, index) for index, since in running.items() if since is not None)
    if not quiet:
        return ""
    longest = quiet_for(now - quiet[0][0])
    if len(running) == 1:
        return longest
    noun = "rank" if job.is_gang else "task"
    first, others = quiet[0][1], sorted(index for _, index in quiet[1:])
    share = "all" if len(quiet) == len(running) else f"{len(quiet)} of"
    then = f", then {format_indexes(others)}" if others else ""
    return f"{share} {count(len(running), noun)} {longest}: {noun} {first}{then}"
