"""Attributes of all workers in the log, including forgotten workers, and the spans in which they were configured."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field

from iris_cli.core import AttributeValue, Cluster, WorkerId, constraints, pattern
from iris_cli.core.attributes import int_attribute
from iris_cli.core.events import events as ev

_DIGITS = pattern(r"([0-9]{1,18})")


class WorkerLine(Struct, frozen=True, kw_only=True):
    """Last known facts of one worker. `slice` is None for a single host. `chips` counts TPU chips or GPUs.

    `configured_spans`: begin and end of each span in which the worker was in cluster.yaml, in seconds since the epoch.
    """

    OMITTED: ClassVar = ("index", "configured_spans")
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


class _WorkerFacts(Struct):
    """Facts about one worker. `since`: the time since which it is in cluster.yaml, or None after its removal."""

    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    chips: int = 0
    gpus: int = 0
    since: float | None = None
    configured_spans: list[tuple[float, float]] = field(default_factory=list)

    def text(self, key: str) -> str | None:
        value = self.attributes.get(key)
        return None if value is None else str(value)


def _natural_key(name: str) -> list[str | int]:
    """Return a sort key that compares the numbers in a name by value: `w-2` before `w-10`."""
    return [int(part) if position % 2 else part for position, part in enumerate(_DIGITS.split(name))]


class WorkerHistory:
    """Collects facts about workers during a replay from `start`. `begin` is the time of the first transaction."""

    def __init__(self, start: Cluster) -> None:
        self.begin = float("inf")
        self._workers = {
            each.id: _WorkerFacts(each.attributes_without_taints, each.chips, each.gpus, since=start.at)
            for each in start.workers.values()
        }
        self.chips = {attempt: worker.chips for worker in start.workers.values() for attempt in worker.claims}
        """For each attempt, the number of TPU chips that its worker had at the assignment."""

    def record(self, transactions: Iterable[ev.Transaction]) -> Iterator[ev.Transaction]:
        """Record the facts in each transaction, then yield the transaction."""
        for transaction in transactions:
            self.begin = min(self.begin, transaction.at)
            for event in transaction.events:
                self._record_event(event, transaction.at)
            yield transaction

    def _record_event(self, event: ev.Event, at: float) -> None:
        match event:
            case ev.WorkerRegistered():
                self._workers.setdefault(event.worker, _WorkerFacts()).since = at
            case ev.WorkerUpdated():
                facts = self._workers[event.worker]
                facts.attributes, facts.chips, facts.gpus = event.attributes, event.chips, event.gpus
            case ev.WorkerForgotten():
                facts = self._workers[event.worker]
                if facts.since is not None:
                    facts.configured_spans.append((facts.since, at))
                facts.since = None
            case ev.TaskAssigned():
                self.chips[event.attempt_id] = self._workers[event.worker].chips

    def lines(self, begin: float, end: float) -> tuple[WorkerLine, ...]:
        """Return the workers of this span: workers of slices by slice and index, then the other workers by id."""
        lines = [
            line
            for worker, facts in self._workers.items()
            if (line := _line(worker, facts, begin, end)).configured_spans or facts.since is not None
        ]

        def sort_key(line: WorkerLine) -> tuple[bool, list[str | int], int, list[str | int]]:
            return line.slice is None, _natural_key(line.slice or ""), line.index, _natural_key(line.id)

        return tuple(sorted(lines, key=sort_key))


def _line(worker: WorkerId, facts: _WorkerFacts, begin: float, end: float) -> WorkerLine:
    spans = [*facts.configured_spans, *([(facts.since, end)] if facts.since is not None else [])]
    clipped = ((max(first, begin), min(last, end)) for first, last in spans)
    return WorkerLine(
        id=worker,
        slice=facts.text(constraints.TPU_NAME_ATTRIBUTE_KEY),
        index=int_attribute(facts.attributes, constraints.TPU_WORKER_ID_ATTRIBUTE_KEY) or 0,
        type=facts.text(constraints.DEVICE_VARIANT_ATTRIBUTE_KEY) or "",
        chips=facts.chips or facts.gpus,
        configured_spans=tuple((first, last) for first, last in clipped if first < last),
    )
