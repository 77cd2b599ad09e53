"""What an event that does not fit is answered with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from iris_cli.core.events import events as ev
from iris_cli.core.events.event import Event
from iris_cli.core.events.event import IllegalTransitionError as IllegalTransitionError
from iris_cli.core.ids import TaskId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import Task
from iris_cli.errors import LogDamagedError


class ImpossibleHistoryError(IllegalTransitionError, LogDamagedError):
    """A transaction that stands in the log, and can't have happened by the rules of this program."""

    def __init__(self, seq: int, error: IllegalTransitionError) -> None:
        what = (
            f"seq {seq} of the event log can't have happened after what stands before it: {error!s:.{_SHOWN}}"
        )
        super().__init__(what, hint="`iris log verify` says where; `iris log salvage` ends the log before it")
        self.seq = seq
        self.tell(error.task, error.record, error.events)


_OF_A_TASK = (ev.AttemptEvent, ev.TaskRequeued, ev.TaskEnded)
_SHOWN = 400  # characters of a message
_LINE = 240  # characters of a line of a story
_ATTEMPTS = 10  # the last of them are told


def illegal(event: Event, task: Task) -> IllegalTransitionError:
    """The refusal of an event about a task, with the record of the task."""
    attempts = task.attempts
    last = f"its last attempt {attempts[-1].state}" if attempts else "never placed"
    error = IllegalTransitionError(f"{event!r:.{_LINE}} does not fit {task.id}: it is {task.state}, {last}")
    error.tell(task.id, _record(task))
    return error


def unknown(event: Event, error: KeyError, cluster: Cluster) -> IllegalTransitionError:
    """The refusal of an event about something that does not exist, with the record of its task if that exists."""
    refused = IllegalTransitionError(f"{event!r:.{_LINE}} refers to what does not exist: {error}")
    if isinstance(event, _OF_A_TASK) and (task := cluster.tasks.get(event.task)) is not None:
        refused.tell(task.id, _record(task))
    return refused


def _record(task: Task) -> Iterator[str]:
    if len(task.attempts) > _ATTEMPTS:
        yield f"{len(task.attempts) - _ATTEMPTS} earlier attempts"
    for attempt in task.attempts[-_ATTEMPTS:]:
        yield f"attempt-{attempt.number} on {attempt.worker}: {attempt.phase!r:.{_LINE}}"


def lines_about(task: TaskId, events: Iterable[Event], when: str) -> Iterator[str]:
    """One line for each event about a task or about its job as a whole; `when` it happened."""
    return (f"{when} {event!r:.{_LINE}}" for event in events if _is_about(event, task))


def _is_about(event: Event, task: TaskId) -> bool:
    if isinstance(event, _OF_A_TASK):
        return event.task == task
    if isinstance(event, ev.AttemptsReaped):
        return any(attempt.task == task for attempt in event.attempts)
    if isinstance(event, ev.JobSubmitted):
        return event.job.id == task.job
    return isinstance(event, (ev.JobCancelled, ev.JobEnded, ev.GangRoundEnded)) and event.job == task.job
