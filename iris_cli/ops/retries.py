"""What a job goes again after: the failure of its last try, in short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import AttemptId
from iris_cli.core.job import Job
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, End
from iris_cli.core.task import Task
from iris_cli.core.units import count
from iris_cli.ops.causes import end_words, known_words

if TYPE_CHECKING:
    from iris_cli.journal.state_dir import StateDir

_Tried = tuple[Task, int, End]
"""A task, the number of an attempt of it, and how that ended."""

_TOLD = PROGRAM_FAILURES | INFRASTRUCTURE


def retry_words(cluster: Cluster, job: Job, state: StateDir | None = None) -> str:
    """`retry 1 of 2, after rank 7: exit 1: the memory of the GPU is full`; '' for the first try, or what is over.

    In `state` there may be lines that tell more than what the log keeps.
    """
    if job.end is not None:
        return ""
    tried = _last_round(cluster, job) if job.is_gang else _last_tries(cluster, job)
    if not tried:
        return ""
    task, attempt, end = tried[0]
    if end.reason in INFRASTRUCTURE:
        number, most = job.preempted_rounds if job.is_gang else task.preemptions, job.max_retries_preemption
    else:
        number, most = job.failed_rounds if job.is_gang else task.failures, job.max_retries_failure
    who = f"{'rank ' if job.is_gang else 'task-'}{task.index}: " if job.replicas > 1 else ""
    more = f" (and {count(len(tried) - 1, 'more task')})" if len(tried) > 1 else ""
    known = known_words(end, state, AttemptId(task.id, attempt))
    return f"retry {number} of {most}, after {who}{end_words(end)}{known}{more}"


def _last_round(cluster: Cluster, job: Job) -> list[_Tried]:
    """Who spoiled the last round that was spoiled and has its verdict: a lost host outranks exit codes."""
    if not (job.failed_rounds or job.preempted_rounds):
        return []
    spoiled = [
        (attempt.round, (task, attempt.number, attempt.end))
        for task in cluster.tasks_of(job.id)
        for attempt in task.attempts
        if attempt.end is not None and attempt.end.reason in _TOLD and attempt.round < job.settled_rounds
    ]
    last = max((number for number, _ in spoiled), default=0)
    tried = [each for number, each in spoiled if number == last]
    return sorted(tried, key=lambda each: (each[2].reason not in INFRASTRUCTURE, each[2].at, each[0].index))[
        :1
    ]


def _last_tries(cluster: Cluster, job: Job) -> list[_Tried]:
    """The last failure of each task that goes again; the latest first."""
    tried: list[_Tried] = []
    for task in cluster.tasks_of(job.id):
        if task.state.terminal or not (task.failures or task.preemptions):
            continue
        ends = [
            (each.number, each.end)
            for each in task.attempts
            if each.end is not None and each.end.reason in _TOLD
        ]
        tried += [(task, *ends[-1])] if ends else []
    return sorted(tried, key=lambda each: (-each[2].at, each[0].index))
