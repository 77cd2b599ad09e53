"""A cluster while events change it, and the errors for events that are not possible."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Generic, TypeVar

from iris_cli.core import Cluster, Job, JobId, Task, TaskId, Worker, WorkerId
from iris_cli.core.events import IllegalTransitionError as IllegalTransitionError
from iris_cli.core.events import events as ev
from iris_cli.core.events.events import Event
from iris_cli.core.model.slice import GroupRecord, Slice
from iris_cli.errors import LogDamagedError

E = TypeVar("E", bound=Event)
K = TypeVar("K")
R = TypeVar("R")
ApplyEvent = Callable[..., object]
"""Function `(edit, event, at)` that applies one type of event. Its result is not used."""


class EditedTable(Generic[K, R]):
    """A table of the cluster whose records the caller may change. Raises KeyError.

    Other code may hold a record and compare it with a later version. So each record is copied before its first change,
    and the copy replaces the record in the table.
    """

    __slots__ = ("_copied", "_copy_record", "_records")

    def __init__(self, records: dict[K, R], copy_record: Callable[[R], R] = copy) -> None:
        self._records = records
        self._copy_record = copy_record
        self._copied: set[K] = set()  # the keys of the records that no other code holds

    def __getitem__(self, key: K) -> R:
        record = self._records[key]
        if key not in self._copied:
            record = self[key] = self._copy_record(record)
        return record

    def __setitem__(self, key: K, record: R) -> None:
        self._records[key] = record
        self._copied.add(key)

    def add(self, records: Mapping[K, R]) -> None:
        """Add records with new keys, faster than one by one."""
        # A Table has no `update`, because it would count replaced entries twice.
        dict.update(self._records, records)
        self._copied.update(records)

    def publish(self) -> None:
        """Mark all records as shared with other code. Each record is copied again before its next change."""
        self._copied.clear()


class Edit:
    """The tables of a cluster, for code that changes records. Code that only reads a record takes it from `cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: EditedTable[JobId, Job] = EditedTable(cluster.jobs)
        self.tasks: EditedTable[TaskId, Task] = EditedTable(cluster.tasks, _copy_task)
        self.workers: EditedTable[WorkerId, Worker] = EditedTable(cluster.workers, _copy_worker)
        self.slices: EditedTable[str, Slice] = EditedTable(cluster.slices)
        self._groups: EditedTable[str, GroupRecord] = EditedTable(cluster.scale_groups)

    def publish(self) -> None:
        for table in (self.jobs, self.tasks, self.workers, self.slices, self._groups):
            table.publish()

    def group(self, name: str) -> GroupRecord:
        """Return the record of a scale group, or a new record if the group is unknown."""
        if name not in self.cluster.scale_groups:
            self._groups[name] = GroupRecord(name=name)
        return self._groups[name]


def _copy_task(task: Task) -> Task:
    copied = copy(task)
    copied.attempts = tuple(map(copy, task.attempts))
    return copied


def _copy_worker(worker: Worker) -> Worker:
    copied = copy(worker)
    copied.claims = worker.claims.copy()
    return copied


def change_row(kind: type[E], change: Callable[[Edit, E, float], object]) -> tuple[type[Event], ApplyEvent]:
    """Return a row of the table of events. The type checker verifies that `change` takes this type of event."""
    return kind, change


class ImpossibleHistoryError(IllegalTransitionError, LogDamagedError):
    """A transaction in the log that is impossible by the rules of this version."""

    def __init__(self, seq: int, error: IllegalTransitionError) -> None:
        what = f"seq {seq} of the event log contradicts the lines before it: {error!s:.{_MAX_MESSAGE}}"
        super().__init__(
            what, hint="`iris log verify` shows the line; `iris log salvage` truncates the log before it"
        )
        self.seq = seq
        self.attach(error.task, error.record, error.events)


_TASK_EVENTS = (ev.AttemptEvent, ev.TaskRequeued, ev.TaskEnded)
_MAX_MESSAGE = 400  # characters of a message
_WIDTH = 240  # characters of one line about an event
_MAX_ATTEMPTS = 10  # maximum number of attempts shown: the last attempts


def illegal_transition_error(event: Event, task: Task) -> IllegalTransitionError:
    """Return the error for an event that is not possible for a task. Its notes list the task's attempts."""
    attempts = task.attempts
    last = f"its last attempt {attempts[-1].state}" if attempts else "never placed"
    error = IllegalTransitionError(f"{event!r:.{_WIDTH}} does not fit {task.id}: it is {task.state}, {last}")
    error.attach(task.id, _record(task))
    return error


def not_found_error(event: Event, error: KeyError, cluster: Cluster) -> IllegalTransitionError:
    """Return the error for an event about a missing object. Its notes list the attempts of the event's task, if any."""
    refusal = IllegalTransitionError(f"{event!r:.{_WIDTH}} refers to an unknown object: {error}")
    if isinstance(event, _TASK_EVENTS) and (task := cluster.tasks.get(event.task)) is not None:
        refusal.attach(task.id, _record(task))
    return refusal


def _record(task: Task) -> Iterator[str]:
    if len(task.attempts) > _MAX_ATTEMPTS:
        yield f"{len(task.attempts) - _MAX_ATTEMPTS} earlier attempts"
    for attempt in task.attempts[-_MAX_ATTEMPTS:]:
        yield f"attempt-{attempt.number} on {attempt.worker}: {attempt.phase!r:.{_WIDTH}}"


def lines_about(task: TaskId, events: Iterable[Event], when: str) -> Iterator[str]:
    """Yield a line for each event about a task or its whole job. Each line begins with `when`."""
    return (f"{when} {event!r:.{_WIDTH}}" for event in events if _is_about(event, task))


def _is_about(event: Event, task: TaskId) -> bool:
    if isinstance(event, _TASK_EVENTS):
        return event.task == task
    if isinstance(event, ev.AttemptsReaped):
        return any(attempt.task == task for attempt in event.attempts)
    if isinstance(event, ev.JobSubmitted):
        return event.job.id == task.job
    return isinstance(event, (ev.JobCancelled, ev.JobEnded, ev.GangRoundEnded)) and event.job == task.job
