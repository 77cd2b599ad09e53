"""What happened, from the log: one entry for each event, in the order of the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from iris_cli.core.dataclass import dataclass
from iris_cli.core.events import AttemptEvent, AttemptsReaped, Event, JobSubmitted, TaskAssigned, Transaction
from iris_cli.core.ids import AttemptId, TaskId, WorkerId, clip
from iris_cli.core.nearest import did_you_mean
from iris_cli.errors import NotFoundError
from iris_cli.ops.event_words import event_words
from iris_cli.ops.session import Session
from iris_cli.ops.view import read_log


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One event. `at` is the wall clock of whoever wrote it (`actor`), `seq` its place in the log."""

    seq: int
    at: float
    actor: str
    type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The newest entries, the newest last; `earlier` counts those that were left out."""

    subject: str
    entries: tuple[Entry, ...]
    earlier: int
    messages: tuple[str, ...]


def history(session: Session, subject: str = "", *, limit: int = 0) -> History:
    """The last `limit` (0: all) events, of everything or of one job, task or worker.

    A worker's history holds what happened to the attempts on it. Raises NotFoundError.
    """
    newest: deque[Entry] = deque(maxlen=limit or None)
    names: dict[str, None] = {}
    total = 0
    transactions, messages = read_log(session)
    for transaction, event, subjects in _with_subjects(transactions):
        names.update(dict.fromkeys(subjects))
        if not subject or subject in subjects:
            newest.append(_entry(transaction, event))
            total += 1
    if subject and not total:
        raise NotFoundError(
            f"the log knows no job, task or worker {clip(subject)!r}",
            hint=did_you_mean(clip(subject), names) or "`iris history` shows everything",
        )
    return History(subject=subject, entries=tuple(newest), earlier=total - len(newest), messages=messages)


def entries_of(transactions: Iterable[Transaction]) -> tuple[Entry, ...]:
    """One entry for each event of these transactions."""
    return tuple(_entry(transaction, event) for transaction in transactions for event in transaction.events)


def _entry(transaction: Transaction, event: Event) -> Entry:
    return Entry(
        seq=transaction.seq,
        at=transaction.at,
        actor=transaction.actor,
        type=type(event).__name__,
        text=event_words(event),
    )


def _with_subjects(transactions: Iterable[Transaction]) -> Iterator[tuple[Transaction, Event, set[str]]]:
    """Each event with the names of the job, the task and the worker that it is about."""
    workers: dict[AttemptId, WorkerId] = {}
    for transaction in transactions:
        for event in transaction.events:
            if isinstance(event, TaskAssigned):
                workers[event.attempt_id] = event.worker
            yield transaction, event, _subjects(event, workers)


def _subjects(event: Event, workers: dict[AttemptId, WorkerId]) -> set[str]:
    if isinstance(event, JobSubmitted):
        return {event.job.id}
    subjects = {str(getattr(event, name)) for name in ("worker", "job", "task") if hasattr(event, name)}
    task = getattr(event, "task", None)
    if isinstance(task, TaskId):
        subjects.add(task.job)
    if isinstance(event, AttemptsReaped):
        subjects.update(name for attempt in event.attempts for name in (str(attempt.task), attempt.task.job))
    if isinstance(event, AttemptEvent) and event.attempt_id in workers:
        subjects.add(workers[event.attempt_id])
    return subjects
