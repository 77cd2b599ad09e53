"""All workers in the log, including forgotten ones: their attributes, and the times in which they were configured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from iris_cli.core import AttemptId, Cluster, Worker, WorkerId, pattern
from iris_cli.core.constraints import (
    DEVICE_VARIANT_ATTRIBUTE_KEY,
    TPU_NAME_ATTRIBUTE_KEY,
    TPU_WORKER_ID_ATTRIBUTE_KEY,
    AttributeValue,
)
from iris_cli.core.events.events import (
    Event,
    TaskAssigned,
    Transaction,
    WorkerForgotten,
    WorkerRegistered,
    WorkerUpdated,
)


class WorkerLine(Struct, frozen=True, kw_only=True):
    """Last known facts of one worker. `slice` is None for a single host; `chips` counts TPU chips or GPUs.

    `configured_spans`: begin and end of each time in which it was in cluster.yaml, in seconds since the epoch.
    """

    id: WorkerId
    slice: str | None
    index: int
    type: str
    chips: int
    configured_spans: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        """Seconds in which the worker was in cluster.yaml."""
        return sum(end - begin for begin, end in self.configured_spans)


class _Known(Struct):
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    chips: int = 0
    gpus: int = 0
    since: float | None = None
    configured_spans: list[tuple[float, float]] = field(default_factory=list)

    def text(self, key: str) -> str | None:
        value = self.attributes.get(key)
        return None if value is None else str(value)


_DIGITS = pattern(r"([0-9]{1,18})")


def _natural_key(name: str) -> list[str | int]:
    """Return a sort key that compares the numbers in a name by value: `w-2` before `w-10`."""
    return [int(part) if position % 2 else part for position, part in enumerate(_DIGITS.split(name))]


class Fleet:
    """Collector of worker facts during a replay from `start`. `begin` is the time of the first transaction."""

    def __init__(self, start: Cluster) -> None:
        self.begin = float("inf")
        self._known = {worker.id: _known_at(start.at, worker) for worker in start.workers.values()}
        self._chips = {
            attempt: worker.chips for worker in start.workers.values() for attempt in worker.claims
        }
        self._handlers: dict[type[Event], Callable[[Any, float], None]] = {
            WorkerRegistered: self._registered,
            WorkerUpdated: self._updated,
            WorkerForgotten: self._forgotten,
            TaskAssigned: self._assigned,
        }

    def watched(self, transactions: Iterable[Transaction]) -> Iterator[Transaction]:
        """Yield the transactions, after recording worker facts from each."""
        for transaction in transactions:
            self.begin = min(self.begin, transaction.at)
            for event in transaction.events:
                handle = self._handlers.get(type(event))
                if handle is not None:
                    handle(event, transaction.at)
            yield transaction

    def chips_of(self, attempt: AttemptId) -> int:
        """Return the number of TPU chips that the attempt's worker had at the assignment."""
        return self._chips[attempt]

    def lines(self, begin: float, end: float) -> tuple[WorkerLine, ...]:
        """Return the workers of this span: by slice and index, then workers without a slice by id."""
        lines = [
            line
            for worker, known in self._known.items()
            if (line := _line(worker, known, begin, end)).configured_spans or known.since is not None
        ]
        return tuple(
            sorted(
                lines,
                key=lambda each: (
                    each.slice is None,
                    _natural_key(each.slice or ""),
                    each.index,
                    _natural_key(each.id),
                ),
            )
        )

    def _registered(self, event: WorkerRegistered, at: float) -> None:
        self._known.setdefault(event.worker, _Known()).since = at

    def _updated(self, event: WorkerUpdated, _at: float) -> None:
        known = self._known[event.worker]
        known.attributes, known.chips, known.gpus = event.attributes, event.chips, event.gpus

    def _forgotten(self, event: WorkerForgotten, at: float) -> None:
        known = self._known[event.worker]
        if known.since is not None:
            known.configured_spans.append((known.since, at))
        known.since = None

    def _assigned(self, event: TaskAssigned, _at: float) -> None:
        self._chips[event.attempt_id] = self._known[event.worker].chips


def _known_at(moment: float, worker: Worker) -> _Known:
    return _Known(attributes=worker.own_attributes, chips=worker.chips, gpus=worker.gpus, since=moment)


def _line(worker: WorkerId, known: _Known, begin: float, end: float) -> WorkerLine:
    spans = [*known.configured_spans, *([(known.since, end)] if known.since is not None else [])]
    clipped = ((max(first, begin), min(last, end)) for first, last in spans)
    index = known.attributes.get(TPU_WORKER_ID_ATTRIBUTE_KEY)
    return WorkerLine(
        id=worker,
        slice=known.text(TPU_NAME_ATTRIBUTE_KEY),
        index=index.value if index is not None and isinstance(index.value, int) else 0,
        type=known.text(DEVICE_VARIANT_ATTRIBUTE_KEY) or "",
        chips=known.chips or known.gpus,
        configured_spans=tuple((first, last) for first, last in clipped if first < last),
    )
