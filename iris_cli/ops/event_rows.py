"""The event log as a table for other programs: one row per event, with a stable schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from iris_cli.core.events import events as ev
from iris_cli.core.ids import AttemptId, TaskId, WorkerId
from iris_cli.errors import NotFoundError
from iris_cli.journal.log.record import encode_event
from iris_cli.journal.log.timestamps import iso_time
from iris_cli.journal.state_dir import StateDir


class Row(Struct, frozen=True, kw_only=True):
    """One event.

    `index`: its position in the transaction, from 0. `event`: its fields as in the log. `job`, `task`, `attempt` and
    `worker`: its subjects, or None.
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
    """Yield all events after `after_seq`, in order. Raises NotFoundError, and LogDamagedError after the valid lines."""
    reading = state.read_history(archive=True)
    workers: dict[AttemptId, WorkerId] = {}  # most events of an attempt don't contain its worker
    for transaction in reading:
        for index, event in enumerate(transaction.events):
            if isinstance(event, ev.TaskAssigned):
                workers[event.attempt_id] = event.worker
            if transaction.seq > after_seq:
                yield _row(transaction, index, event, workers)
    if reading.damage is not None:
        raise reading.damage.error()
    if not reading.log_exists:
        raise NotFoundError(f"no event log in {state.path}", hint="name a directory with --state-dir")


def _row(
    transaction: ev.Transaction, index: int, event: ev.Event, workers: Mapping[AttemptId, WorkerId]
) -> Row:
    worker = getattr(event, "worker", None)
    if isinstance(event, ev.AttemptEvent):
        worker = workers.get(event.attempt_id)
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
