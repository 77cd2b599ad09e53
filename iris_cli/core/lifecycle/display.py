"""Display words for jobs and tasks: the state, refined by the states of the attempts.

The log and the `state` fields of JSON keep the states; `display` is a separate field. A display is a word, often with a
note: `RETRYING (1 of 3)`, `PENDING (3 of 20 done)`, `FAILED exit 1`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from iris_cli.core import Cluster, EndReason, Job, JobId, JobState, TaskState, state_of
from iris_cli.core.model.task import (
    INFRASTRUCTURE,
    PROGRAM_FAILURES,
    Attempt,
    End,
    Ended,
    Running,
    Stopping,
    Task,
)


class DisplayWord(StrEnum):
    """Display words that are not states. `STOPPED`: a task that iris stopped with its gang; not for jobs."""

    STOPPED = "STOPPED"
    STOPPING = "STOPPING"
    RETRYING = "RETRYING"


class FailedAttempt(NamedTuple):
    """An attempt that ended for a reason that allows a retry."""

    task: Task
    number: int
    end: End


_RETRIED_AFTER = PROGRAM_FAILURES | INFRASTRUCTURE | {EndReason.RETRIED}
_OWN_FAILURES = PROGRAM_FAILURES | {EndReason.TIMEOUT}
_WITH_EXIT = frozenset({EndReason.USER_ERROR, EndReason.SIGNAL})
_WORST_FIRST: tuple[str, ...] = (
    *(TaskState.FAILED, TaskState.WORKER_FAILED, TaskState.UNSCHEDULABLE),
    *(DisplayWord.STOPPED, DisplayWord.STOPPING, DisplayWord.RETRYING),
    *(TaskState.PENDING, TaskState.ASSIGNED, TaskState.RUNNING, TaskState.SUCCEEDED, TaskState.KILLED),
)


def word_of(display: str) -> str:
    """Return the word of a display, without its note."""
    return display.partition(" ")[0]


def job_display(cluster: Cluster, job_id: JobId) -> str:
    """Return the display of a job. An open job displays RUNNING only while an attempt is running."""
    job, tasks = cluster.jobs[job_id], cluster.tasks_of(job_id)
    return display_of(job, tasks, state_of(job, tasks), live_attempts(tasks))


def live_attempts(tasks: Iterable[Task]) -> list[Attempt]:
    last_attempts = (task.attempts[-1] for task in tasks if task.attempts)
    return [attempt for attempt in last_attempts if type(attempt.phase) is not Ended]


def display_of(job: Job, tasks: Sequence[Task], state: JobState, live: Sequence[Attempt]) -> str:
    """Return the display of a job in this state with these live attempts."""
    if state.terminal:
        return state
    if any(type(attempt.phase) is Running for attempt in live):
        return JobState.RUNNING
    without_verdict = job.is_gang and job.rounds > job.settled_rounds and not live
    if without_verdict or any(map(_is_stopping, live)):
        return DisplayWord.STOPPING
    if failures := last_failures(job, tasks):
        return _retrying_display(job, failures[0])
    ended = sum(count for state, count in Counter([task.state for task in tasks]).items() if state.terminal)
    return f"{JobState.PENDING} ({ended} of {len(tasks)} done)" if ended else JobState.PENDING


def task_displays(cluster: Cluster, job_id: JobId) -> list[str]:
    return displays_of(cluster.jobs[job_id], cluster.tasks_of(job_id))


def not_running_words(cluster: Cluster, task: Task) -> str:
    """Return why no attempt of the task is running, such as `not running (PENDING)`."""
    display = task_displays(cluster, task.job)[task.index]
    # A rank of a gang stays RUNNING until its gang has ended.
    return f"not running ({'ended before its gang' if display == TaskState.RUNNING else display})"


def displays_of(job: Job, tasks: Sequence[Task]) -> list[str]:
    has_retry_pending = any(task.state is TaskState.PENDING and task.attempts for task in tasks)
    failures = last_failures(job, tasks) if has_retry_pending else []
    retrying = {each.task.id: _retrying_display(job, each) for each in failures}
    if job.is_gang and failures:
        retrying = dict.fromkeys(job.task_ids, _retrying_display(job, failures[0]))
    return [
        _task_display(task, retrying.get(task.id, TaskState.PENDING))
        if task.attempts or task.end is not None or retrying
        else task.state
        for task in tasks
    ]


def count_displays(displays: Iterable[str]) -> dict[str, int]:
    """Return the number of tasks by the word of their display, in the order `_WORST_FIRST`."""
    found = Counter[str]()
    for display, number in Counter(displays).items():
        found[word_of(display)] += number
    return {word: found[word] for word in _WORST_FIRST if word in found}


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Return `17 pending, 3 succeeded` or `1 failed, 3 stopped with it`."""
    words = {word: word.lower().replace("_", " ") for word in counts}
    failed = counts.get(TaskState.FAILED, 0) + counts.get(TaskState.WORKER_FAILED, 0)
    if DisplayWord.STOPPED in counts and failed:
        words[DisplayWord.STOPPED] = f"stopped with {'it' if failed == 1 else 'them'}"
    return ", ".join(f"{number} {words[word]}" for word, number in counts.items())


def filter_words(cluster: Cluster, job_id: JobId) -> frozenset[str]:
    """Return all words by which `--state` finds a job: the state and the word of the display.

    The result includes `STOPPED` if a task is stopped, and `STOPPING` if attempts of an ended job are still live.
    """
    found = {str(cluster.job_state(job_id)), word_of(job_display(cluster, job_id))}
    ends = (task.end for task in cluster.tasks_of(job_id))
    if any(end is not None and end.reason is EndReason.SIBLING for end in ends):
        found |= {DisplayWord.STOPPED} & set(map(word_of, task_displays(cluster, job_id)))
    if cluster.jobs[job_id].end is not None and cluster.live_attempts_of(job_id):
        found.add(DisplayWord.STOPPING)
    return frozenset(found)


def retry_count(job: Job, tasks: Sequence[Task], reasons: Collection[EndReason] = PROGRAM_FAILURES) -> int:
    """Return the number of rounds (of a gang) or attempts that were retried after an end with a reason in `reasons`.

    The last round or attempt is not counted: it was not retried.
    """
    if job.is_gang:
        failures = [each for number, each in _triggers(tasks).items() if number < job.rounds - 1]
        return sum(each.end.reason in reasons for each in failures)
    ends = [each.end for task in tasks for each in task.attempts[:-1]]
    return sum(end is not None and end.reason in reasons for end in ends)


def last_failures(job: Job, tasks: Sequence[Task]) -> list[FailedAttempt]:
    """Return the last failure of each task that was or will be retried, latest first.

    For a gang, return the failure that ended the last failed round with a verdict. Return [] for an ended job.
    """
    if job.end is not None:
        return []
    if job.is_gang:
        triggers = _triggers(tasks)
        last_round = max((number for number in triggers if number < job.settled_rounds), default=None)
        return [triggers[last_round]] if last_round is not None else []
    placed = (task for task in tasks if task.attempts and not task.state.terminal)
    last_by_task = {each.task.id: each for each in _failures(placed)}
    return sorted(last_by_task.values(), key=lambda each: (-each.end.at, each.task.index))


def _failures(tasks: Iterable[Task]) -> Iterator[FailedAttempt]:
    """Yield the attempts that ended for a reason that allows a retry, in the order of each task's attempts."""
    for task in tasks:
        for attempt in task.attempts:
            if attempt.end is not None and attempt.end.reason in _RETRIED_AFTER:
                yield FailedAttempt(task, attempt.number, attempt.end)


def _triggers(tasks: Iterable[Task]) -> dict[int, FailedAttempt]:
    """Return the failure that ended each failed round of a gang: a lost host, or otherwise the earliest failure."""
    rounds: dict[int, list[FailedAttempt]] = {}
    for each in _failures(tasks):
        rounds.setdefault(each.task.attempts[each.number].round, []).append(each)
    return {
        number: min(
            failures, key=lambda each: (each.end.reason not in INFRASTRUCTURE, each.end.at, each.task.index)
        )
        for number, failures in rounds.items()
    }


def _is_stopping(attempt: Attempt) -> bool:
    """Return whether the attempt is being stopped. The fence of an attempt that has not started is not a stop."""
    if type(attempt.phase) is not Stopping:
        return False
    return attempt.phase.order.reason is not EndReason.DISPATCH_FAILED or attempt.started_at is not None


def _retrying_display(job: Job, failure: FailedAttempt) -> str:
    task, _, end = failure
    if end.reason is EndReason.RETRIED:
        note = "asked"
    elif end.reason in INFRASTRUCTURE:
        note = "host lost"
    else:
        note = f"{job.failed_rounds if job.is_gang else task.failures} of {job.max_retries_failure}"
    return f"{DisplayWord.RETRYING} ({note})"


def _task_display(task: Task, pending: str) -> str:
    last_attempt = task.attempts[-1] if task.attempts else None
    if last_attempt is not None and type(last_attempt.phase) is Stopping:
        return DisplayWord.STOPPING
    if task.end is None and last_attempt is not None and type(last_attempt.phase) is Running:
        return task.state  # the most frequent case
    if task.state is TaskState.PENDING:
        return pending
    if task.end is not None and task.end.reason is not EndReason.SIBLING:
        return _failed_display(task.end) if task.state is TaskState.FAILED else task.state
    end = last_attempt.end if last_attempt is not None else None
    if end is not None and end.reason in _OWN_FAILURES:
        return _failed_display(end)
    if end is not None and end.reason in INFRASTRUCTURE:
        return TaskState.WORKER_FAILED
    with_gang = task.end is not None or (end is not None and end.reason is EndReason.SIBLING)
    return DisplayWord.STOPPED if with_gang else task.state


def _failed_display(end: End) -> str:
    exited = end.reason in _WITH_EXIT and end.exit_code is not None
    return f"{TaskState.FAILED} exit {end.exit_code}" if exited else TaskState.FAILED


def dependency_reason(cluster: Cluster, job: Job) -> str:
    """Return a text with the failed dependencies of a job."""
    states = {each: cluster.job_state(each) if each in cluster.jobs else None for each in job.after}
    failures = {each: state for each, state in states.items() if state is None or state.is_failure}
    failed = [f"{each} ({state or 'unknown'})" for each, state in failures.items()]
    return f"dependency did not succeed: {', '.join(failed)}"
