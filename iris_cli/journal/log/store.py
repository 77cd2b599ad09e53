"""The port to the log: what every store of events can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from iris_cli.core.events.events import ClusterCreated, Event, LogCompacted, Transaction


class Conflict(Struct, frozen=True):
    """Nothing was written: the log moved on to `seq` meanwhile, and the decision must be made anew."""

    seq: int


class EventStore(Protocol):
    """An append-only log of transactions, numbered from 1 without gaps."""

    def read(self, after_seq: int = 0) -> Iterator[Transaction]:
        """The transactions behind `after_seq`, in order."""
        ...

    def append(self, expected_seq: int, events: Sequence[Event], *, at: float, actor: str) -> int | Conflict:
        """Commit events as one transaction if `expected_seq` is still the last; the new one is returned.

        The first event of a log is ClusterCreated. Raises ValueError for no events, and for events that could
        not be read back.
        """
        ...


def check_events(expected_seq: int, events: Sequence[Event]) -> None:
    """The rules for what may become a transaction, the same for every store. Raises ValueError."""
    if not events:
        raise ValueError("a transaction has at least one event")
    if (expected_seq == 0) != isinstance(events[0], ClusterCreated):
        raise ValueError("a log begins with ClusterCreated, and only there")
    if LogCompacted in map(type, events):
        raise ValueError("LogCompacted belongs to the line that a compaction writes")
