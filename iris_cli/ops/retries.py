"""What a job goes again after: the failure of its last try, in short."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.cluster import Cluster
from iris_cli.core.job import Job
from iris_cli.core.outcome import INFRASTRUCTURE, PROGRAM_FAILURES, End
from iris_cli.core.task import Task
from iris_cli.core.units import count
from iris_cli.ops.causes import end_words, known_words

_TOLD = PROGRAM_FAILURES | INFRASTRUCTURE


def retry_words(cluster: Cluster, job: Job) -> str:
    """`retry 1 of 2, after rank 7: exit 1: the memory of the GPU is full`; '' for the first try, or what is over."""
    if job.end is not None:
        return ""
    return _of_gang(cluster, job) if job.is_gang else _of_tasks(cluster, job)


def _of_gang(cluster: Cluster, job: Job) -> str:
    if not (job.failed_rounds or job.preempted_rounds):
        return ""
    last: dict[int, tuple[Task, End]] = {}
    for task, number, end in _ends(cluster, job):
        known = last.get(number)
        if known is None or end.at < known[1].at:
            last[number] = task, end
    if not last:
        return ""
    task, end = last[max(last)]
    return _words(job, end, job.failed_rounds, job.preempted_rounds, f"rank {task.index}: ")


def _of_tasks(cluster: Cluster, job: Job) -> str:
    again: list[tuple[Task, End]] = []
    for task in cluster.tasks_of(job.id):
        if task.state.terminal or not (task.failures or task.preemptions):
            continue
        ends = [
            attempt.end
            for attempt in task.attempts
            if attempt.end is not None and attempt.end.reason in _TOLD
        ]
        if ends:
            again.append((task, ends[-1]))
    if not again:
        return ""
    task, end = max(again, key=lambda each: (each[1].at, -each[0].index))
    who = f"task-{task.index}: " if job.replicas > 1 else ""
    more = f" (and {count(len(again) - 1, 'more task')})" if len(again) > 1 else ""
    return _words(job, end, task.failures, task.preemptions, who) + more


def _ends(cluster: Cluster, job: Job) -> Iterator[tuple[Task, int, End]]:
    """Of each round that has its verdict, the ends that spoiled it."""
    for task in cluster.tasks_of(job.id):
        for attempt in task.attempts:
            if attempt.end is not None and attempt.end.reason in _TOLD and attempt.round < job.settled_rounds:
                yield task, attempt.round, attempt.end


def _words(job: Job, end: End, failures: int, preemptions: int, who: str) -> str:
    if end.reason in INFRASTRUCTURE:
        number, most = preemptions, job.max_retries_preemption
    else:
        number, most = failures, job.max_retries_failure
    return f"retry {number} of {most}, after {who}{end_words(end)}{known_words(end)}"
