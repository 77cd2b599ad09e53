"""A cluster while events change it, and the errors for events that are not possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import TypeVar

from iris_cli.core import Attempt, Cluster, Job, JobId, Task, TaskId, Worker, WorkerId
from iris_cli.core.events import events as ev
from iris_cli.core.events.event import IllegalTransitionError as IllegalTransitionError
from iris_cli.core.events.events import Event
from iris_cli.core.model.slice import GroupRecord, Slice
from iris_cli.errors import LogDamagedError

E = TypeVar("E", bound=Event)
ApplyEvent = Callable[..., None]
"""Function `(edit, event, at)` that applies one type of event. `on` lets the type checker verify its arguments."""


class Edit:
    """Returns records of the cluster's tables that may be changed. All methods raise KeyError.

    Other code may hold a record and compare it with a later version. So a record is copied when it is first requested,
    and the copy replaces the record in its table.
    """

    __slots__ = ("_attempts", "_groups", "_jobs", "_slices", "_tasks", "_workers", "cluster")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # The keys of the records that were copied, so no other code has them.
        self._jobs: set[JobId] = set()
        self._tasks: set[TaskId] = set()
        self._attempts: set[tuple[TaskId, int]] = set()
        self._workers: set[WorkerId] = set()
        self._slices: set[str] = set()
        self._groups: set[str] = set()

    def publish(self) -> None:
        """Mark all records as shared with other code. Each record is copied again before its next change."""
        for own in (self._jobs, self._tasks, self._attempts, self._workers, self._slices, self._groups):
            own.clear()

    def job(self, job_id: JobId) -> Job:
        job = self.cluster.jobs[job_id]
        if job_id not in self._jobs:
            job = copy(job)
            self.add_job(job)
        return job

    def add_job(self, job: Job) -> None:
        self.cluster.jobs[job.id] = job
        self._jobs.add(job.id)

    def task(self, task_id: TaskId) -> Task:
        task = self.cluster.tasks[task_id]
        if task_id not in self._tasks:
            task = copy(task)
            self.add_task(task)
        return task

    def add_task(self, task: Task) -> None:
        self.cluster.tasks[task.id] = task
        self._tasks.add(task.id)

    def attempt(self, task: Task, number: int) -> Attempt:
        """Return an attempt of a task that may be changed."""
        attempt = task.attempts[number]
        if (task.id, number) not in self._attempts:
            attempt = copy(attempt)
            task.attempts = (*task.attempts[:number], attempt, *task.attempts[number + 1 :])
            self._attempts.add((task.id, number))
        return attempt

    def add_attempt(self, task: Task, attempt: Attempt) -> None:
        task.attempts = (*task.attempts, attempt)
        self._attempts.add((task.id, attempt.number))

    def worker(self, worker_id: WorkerId) -> Worker:
        """Return a worker whose claims may be changed, too."""
        worker = self.cluster.workers[worker_id]
        if worker_id not in self._workers:
            worker = copy(worker)
            worker.claims = worker.claims.copy()
            self.add_worker(worker)
        return worker

    def add_worker(self, worker: Worker) -> None:
        self.cluster.workers[worker.id] = worker
        self._workers.add(worker.id)

    def slice(self, name: str) -> Slice:
        found = self.cluster.slices[name]
        if name not in self._slices:
            found = copy(found)
            self.add_slice(found)
        return found

    def add_slice(self, added: Slice) -> None:
        self.cluster.slices[added.name] = added
        self._slices.add(added.name)

    def group(self, name: str) -> GroupRecord:
        """Return the record of a scale group, or a new record if the group is unknown."""
        group = self.cluster.scale_groups.get(name)
        if group is None or name not in self._groups:
            group = self.cluster.scale_groups[name] = GroupRecord(name=name) if group is None else copy(group)
            self._groups.add(name)
        return group


def on(kind: type[E], change: Callable[[Edit, E, float], None]) -> tuple[type[Event], ApplyEvent]:
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


_OF_A_TASK = (ev.AttemptEvent, ev.TaskRequeued, ev.TaskEnded)
_MAX_MESSAGE = 400  # characters of a message
_WIDTH = 240  # characters of one line about an event
_MAX_ATTEMPTS = 10  # maximum number of attempts shown: the last attempts


def illegal_transition(event: Event, task: Task) -> IllegalTransitionError:
    """Return the error for an event that is not possible for a task. Its text has the record of the task."""
    attempts = task.attempts
    last = f"its last attempt {attempts[-1].state}" if attempts else "never placed"
    error = IllegalTransitionError(f"{event!r:.{_WIDTH}} does not fit {task.id}: it is {task.state}, {last}")
    error.attach(task.id, _record(task))
    return error


def not_found(event: Event, error: KeyError, cluster: Cluster) -> IllegalTransitionError:
    """Return the error for an event about a missing object. Its text has the record of the event's task, if any."""
    refused = IllegalTransitionError(f"{event!r:.{_WIDTH}} refers to an unknown object: {error}")
    if isinstance(event, _OF_A_TASK) and (task := cluster.tasks.get(event.task)) is not None:
        refused.attach(task.id, _record(task))
    return refused


def _record(task: Task) -> Iterator[str]:
    if len(task.attempts) > _MAX_ATTEMPTS:
        yield f"{len(task.attempts) - _MAX_ATTEMPTS} earlier attempts"
    for attempt in task.attempts[-_MAX_ATTEMPTS:]:
        yield f"attempt-{attempt.number} on {attempt.worker}: {attempt.phase!r:.{_WIDTH}}"


def lines_about(task: TaskId, events: Iterable[Event], when: str) -> Iterator[str]:
    """Yield a line for each event about a task or its whole job. Each line begins with the time `when`."""
    return (f"{when} {event!r:.{_WIDTH}}" for event in events if _is_about(event, task))


def _is_about(event: Event, task: TaskId) -> bool:
    if isinstance(event, _OF_A_TASK):
        return event.task == task
    if isinstance(event, ev.AttemptsReaped):
        return any(attempt.task == task for attempt in event.attempts)
    if isinstance(event, ev.JobSubmitted):
        return event.job.id == task.job
    return isinstance(event, (ev.JobCancelled, ev.JobEnded, ev.GangRoundEnded)) and event.job == task.job
