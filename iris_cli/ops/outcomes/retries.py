"""What a job goes again after: the failure of its last try, in short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_cli.core import AttemptId, Cluster, EndReason, Job, count
from iris_cli.core.lifecycle.display import last_tries
from iris_cli.core.model.task import INFRASTRUCTURE
from iris_cli.ops.outcomes.causes import end_words, known_words

if TYPE_CHECKING:
    from iris_cli.journal.state_dir import StateDir


def retry_words(cluster: Cluster, job: Job, state: StateDir | None = None) -> str:
    """`retry 1 of 2, after rank 7: exit 1: the memory of the GPU is full`; '' for the first try, or what is over.

    In `state` there may be lines that tell more than what the log keeps.
    """
    tried = last_tries(job, cluster.tasks_of(job.id))
    if not tried:
        return ""
    task, attempt, end = tried[0]
    if end.reason is EndReason.RETRIED:
        return "retry, as requested"
    if end.reason in INFRASTRUCTURE:
        number, most = job.preempted_rounds if job.is_gang else task.preemptions, job.max_retries_preemption
    else:
        number, most = job.failed_rounds if job.is_gang else task.failures, job.max_retries_failure
    who = f"{'rank ' if job.is_gang else 'task-'}{task.index}: " if job.replicas > 1 else ""
    more = f" (and {count(len(tried) - 1, 'more task')})" if len(tried) > 1 else ""
    known = known_words(end, state, AttemptId(task.id, attempt))
    return f"retry {number} of {most}, after {who}{end_words(end)}{known}{more}"
