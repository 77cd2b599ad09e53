"""Making the state of the cluster out of records as they are read, so that they need not all be in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

from iris_cli.core.model.cluster import Cluster

if TYPE_CHECKING:
    from iris_cli.journal.log.record import LogRecord


class Fold:
    """Takes records, which come after `start`, and holds the `cluster` then: up to the one `until`, if that is given.

    Keeps those behind `told`. After each `every` records, `keep` may put a part of the cluster elsewhere.
    """

    def __init__(
        self,
        start: Cluster,
        told: int | None,
        *,
        until: int | None = None,
        every: int = 0,
        keep: Callable[[Cluster], Cluster] = lambda cluster: cluster,
    ) -> None:
        self._start = start
        self._told = told
        self._until = until
        self._every = every
        self._keep = keep
        self.cluster = start

    def __call__(self, records: Iterable[LogRecord]) -> tuple[LogRecord, ...]:
        """May be called again, should the log have to be read again. Raises IllegalTransitionError."""
        kept: list[LogRecord] = []
        if self._until is not None:
            records = takewhile(self._is_wanted, records)
        if self._told is not None:
            records = _passing(records, kept, self._told)
        records, self.cluster = iter(records), self._start
        while self._every:
            last = self.cluster.seq + self._every
            self.cluster = _replayed(islice(records, self._every), self.cluster)
            if self.cluster.seq < last:
                return tuple(kept)
            self.cluster = self._keep(self.cluster)
        self.cluster = _replayed(records, self.cluster)
        return tuple(kept)

    def _is_wanted(self, record: LogRecord) -> bool:
        return self._until is None or record.seq <= self._until


def _replayed(records: Iterator[LogRecord], start: Cluster) -> Cluster:
    if (first := next(records, None)) is None:
        return start
    from iris_cli.core.evolve import replay  # and with it every kind of event: only where there are any

    return replay(chain((first,), records), start)


def _passing(records: Iterable[LogRecord], kept: list[LogRecord], told: int) -> Iterator[LogRecord]:
    for record in records:
        if record.seq > told:
            kept.append(record)
        yield record
