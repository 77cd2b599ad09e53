"""History from the event log: one entry per event, in log order."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from iris_cli.core import AttemptId, Cluster, JobId, Origin, TaskId, WorkerId, clip, did_you_mean
from iris_cli.core.events import events as ev
from iris_cli.errors import IrisError, NotFoundError
from iris_cli.journal.log.recovery import Damage, log_messages
from iris_cli.ops.outcomes.event_words import event_words
from iris_cli.ops.session import ProgressState, Session

if TYPE_CHECKING:
    from iris_cli.journal.history import Reading


class Entry(Struct, frozen=True, kw_only=True):
    """One event. `seq` is the number of its transaction. `at` is the time by the clock of `actor`, who recorded it."""

    seq: int
    at: float
    actor: str
    type: str
    text: str


class History(Struct, frozen=True, kw_only=True):
    """The newest entries, newest last.

    `earlier` is the number of omitted entries, or of omitted transactions if `subject` is ''. `archived` is the last
    `seq` in the archive if the archive was not read, otherwise 0.
    """

    subject: str
    entries: tuple[Entry, ...]
    earlier: int
    messages: tuple[str, ...]
    log_damage: Damage | None
    archived: int = 0


def history(
    session: Session, subject: str | None = None, *, limit: int = 0, archive: bool = False
) -> History:
    """Return the last `limit` events (0: all) of the cluster, or of the job, task or worker `subject`.

    With `archive`, also read the archive. A worker's history includes the events of the attempts on this worker. Raises
    NotFoundError.
    """
    if subject is None:
        return _newest(session, limit=limit, archive=archive)
    if (job := _job_of(session, subject)) is not None:
        found = _history_of(session, session.state.history_of_job(job, archive=archive), subject, limit)
        if found.entries and found.log_damage is None:
            return structs.replace(found, archived=0 if archive else found.archived)
    names: dict[str, None] = {}
    found = _history_of(session, [session.state.read_history(archive=archive)], subject, limit, names)
    archived = 0 if archive else found.archived
    if not found.entries:
        session.damage = found.log_damage
        name = clip(subject)
        hint = did_you_mean(name, names) or "`iris history` shows everything"
        if archived:
            hint = f"look in the archive, too: iris history {name} --all"
        raise NotFoundError(f"no job, task or worker {name!r}", hint=hint)
    return structs.replace(found, archived=archived)


def _newest(session: Session, *, limit: int, archive: bool) -> History:
    """Return the last events of the cluster. With a limit, read the log from its end."""
    readings = [session.state.read_history(archive=archive)]
    if limit:
        readings.insert(0, session.state.last_lines(limit, archive=archive))
    for reading in readings:
        with session.progress(partial(_progress_of, reading)):
            found = entries_of(reading)
        if len(found) >= limit:
            break
    entries = found[-limit:]
    archived = 0 if archive else reading.archived
    earlier = entries[0].seq - 1 - archived if entries else 0
    if len(found) > len(entries) and found[-limit - 1].seq == entries[0].seq:
        earlier += 1  # only a part of the first transaction is shown
    return History(
        subject="",
        entries=entries,
        earlier=earlier,
        messages=log_messages(reading.warnings, reading.damage),
        log_damage=reading.damage,
        archived=archived,
    )


def _progress_of(reading: "Reading") -> ProgressState:
    return ("reading the log", *reading.progress)


def _job_of(session: Session, subject: str) -> JobId | None:
    """Return the job that `subject` names or belongs to; None if it names a worker."""
    try:
        cluster = session.view()
    except IrisError:  # the caller reads the log again, and reports the error
        return None
    job = JobId(subject.partition("/task-")[0])
    return None if WorkerId(subject) in cluster.workers else job


def _history_of(
    session: Session,
    readings: "Iterable[Reading]",
    subject: str,
    limit: int,
    names: dict[str, None] | None = None,
) -> History:
    """Return the events about `subject` in these readings. Add the subjects of all events to `names`."""
    newest: deque[Entry] = deque(maxlen=limit or None)
    total, messages, archived = 0, dict[str, None](), 0
    damage: Damage | None = None
    workers = _WorkersOfAttempts(session)
    for reading in readings:
        with session.progress(partial(_progress_of, reading)):
            for transaction, event, subjects in _with_subjects(reading, workers):
                if names is not None:
                    names.update(dict.fromkeys(subjects))
                if subject in subjects:
                    newest.append(_entry(transaction, event))
                    total += 1
        damage, archived = reading.damage or damage, reading.archived
        messages.update(dict.fromkeys(log_messages(reading.warnings, reading.damage)))
    return History(
        subject=subject,
        entries=tuple(newest),
        earlier=total - len(newest),
        messages=tuple(messages),
        log_damage=damage,
        archived=archived,
    )


def entries_of(transactions: Iterable[ev.Transaction]) -> tuple[Entry, ...]:
    return tuple(_entry(transaction, event) for transaction in transactions for event in transaction.events)


def entries_about(
    session: Session, transactions: Iterable[ev.Transaction], names: Collection[str]
) -> tuple[Entry, ...]:
    """Return the entries about any of these jobs, tasks or workers."""
    return tuple(
        _entry(transaction, event)
        for transaction, event, subjects in _with_subjects(transactions, _WorkersOfAttempts(session))
        if not subjects.isdisjoint(names)
    )


def _entry(transaction: ev.Transaction, event: ev.Event) -> Entry:
    return Entry(
        seq=transaction.seq,
        at=transaction.at,
        actor=transaction.actor,
        type=type(event).__name__,
        text=event_words(event),
    )


class _WorkersOfAttempts(dict[AttemptId, WorkerId | None]):
    """Maps attempts to workers. It looks up an attempt in the cluster if its placement was not read from the log."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._cluster: Cluster | None = None

    def __missing__(self, attempt: AttemptId) -> WorkerId | None:
        if self._cluster is None:
            self._cluster = self._session.view()
        try:
            worker = self._cluster.attempt(attempt).worker
        except KeyError:
            worker = None
        self[attempt] = worker
        return worker


def _with_subjects(
    transactions: Iterable[ev.Transaction], workers: _WorkersOfAttempts
) -> Iterator[tuple[ev.Transaction, ev.Event, set[str]]]:
    """Yield each event with its subjects: the names of its jobs, tasks and workers."""
    for transaction in transactions:
        for event in transaction.events:
            if isinstance(event, ev.TaskAssigned):
                workers[event.attempt_id] = event.worker
            yield transaction, event, _subjects(event, workers)


def _submitter(origin: Origin | None) -> tuple[str, ...]:
    """Return the task that submitted a child job, and that task's job; () without an origin."""
    return (str(origin.attempt.task), origin.attempt.task.job) if origin is not None else ()


def _subjects(event: ev.Event, workers: _WorkersOfAttempts) -> set[str]:
    if isinstance(event, ev.JobSubmitted):
        return {event.job.id, *filter(None, (event.job.again,)), *_submitter(event.origin)}
    subjects = {str(getattr(event, name)) for name in ("worker", "job", "task") if hasattr(event, name)}
    subjects.update(_submitter(getattr(event, "origin", None)))
    task = getattr(event, "task", None)
    if isinstance(task, TaskId):
        subjects.add(task.job)
    if isinstance(event, ev.AttemptsReaped):
        subjects.update(name for attempt in event.attempts for name in (str(attempt.task), attempt.task.job))
    if isinstance(event, ev.AttemptEvent) and (worker := workers[event.attempt_id]) is not None:
        subjects.add(worker)
    return subjects
