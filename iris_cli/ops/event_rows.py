"""The event log as a table for other programs: one row per event, with a stable schema."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from iris_cli.clock import iso_time
from iris_cli.core.events import events as ev
from iris_cli.core.ids import AttemptId, TaskId, WorkerId
from iris_cli.errors import NotFoundError
from iris_cli.journal.log.record import encode_event
from iris_cli.journal.state_dir import StateDir

_ENDS = (ev.AttemptEnded, ev.AttemptStopped, ev.TaskDispatchFailed)


class Row(Struct, frozen=True, kw_only=True):
    """One event.

    `index`: position of the event in its transaction, from 0. `event`: the fields of the event as in the log. `job`,
    `task`, `attempt` and `worker`: what the event is about, or None.
    """

    seq: int
    index: int
    at: str
    actor: str
    type: str
    job: str | None
    task: str | None
    attempt: int | None
    worker: str | None
    event: dict[str, Any]


def rows(state: StateDir, after_seq: int = 0) -> Iterator[Row]:
    """Yield all events after the transaction `after_seq`, in order.

    Raises NotFoundError if no log exists. If the log is damaged, raises LogDamagedError after the valid lines.
    """
    reading = state.read_history(archive=True)
    workers = WorkersOfAttempts()
    for transaction in reading:
        for index, event in enumerate(transaction.events):
            worker = workers.read(event)
            if transaction.seq > after_seq:
                yield _row(transaction, index, event, worker)
    if reading.damage is not None:
        raise reading.damage.error()
    if not reading.log_exists:
        raise NotFoundError(f"no event log in {state.path}", hint="name a directory with --state-dir")


class WorkersOfAttempts(dict[AttemptId, WorkerId]):
    """Maps each attempt to its worker, because most events of an attempt do not name the worker.

    `read` removes an attempt at its last event, because the log may contain more attempts than fit into memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._presumed_gone: set[AttemptId] = set()

    def read(self, event: ev.Event) -> WorkerId | None:
        """Return the worker of the next event, or None. Events must be passed in order."""
        if not isinstance(event, ev.AttemptEvent):
            worker_id: WorkerId | None = getattr(event, "worker", None)
            return worker_id
        attempt = event.attempt_id
        if isinstance(event, ev.TaskAssigned):
            self[attempt] = event.worker
        worker = self.get(attempt)
        if isinstance(event, ev.AttemptPresumedGone):  # events about the end and the proof will follow
            self._presumed_gone.add(attempt)
        elif isinstance(event, ev.AttemptProvenGone):
            self._presumed_gone.discard(attempt)
            self.pop(attempt, None)
        elif isinstance(event, _ENDS) and attempt not in self._presumed_gone:
            self.pop(attempt, None)
        return worker


def _row(transaction: ev.Transaction, index: int, event: ev.Event, worker: WorkerId | None) -> Row:
    task = getattr(event, "task", None)
    job = event.job.id if isinstance(event, ev.JobSubmitted) else getattr(event, "job", None)
    if isinstance(task, TaskId):
        job = task.job
    fields = encode_event(event)
    return Row(
        seq=transaction.seq,
        index=index,
        at=iso_time(transaction.at),
        actor=transaction.actor,
        type=fields.pop("type"),
        job=str(job) if job is not None else None,
        task=str(task) if task is not None else None,
        attempt=event.attempt if isinstance(event, ev.AttemptEvent) else None,
        worker=str(worker) if worker is not None else None,
        event=fields,
    )
