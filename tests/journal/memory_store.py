"""The port to the log: the interface of every event store; and a store in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from iris_cli.core.events.events import Event, Transaction
from iris_cli.journal.log.position import START
from iris_cli.journal.log.record import Conflict, check_events, decode_line, encode_line, end_of_line


class EventStore(Protocol):
    """An append-only log of transactions, numbered from 1 without gaps."""

    def read(self, after_seq: int = 0) -> Iterator[Transaction]:
        """Yield the transactions after `after_seq`, in order."""
        ...

    def append(self, expected_seq: int, events: Sequence[Event], *, at: float, actor: str) -> int | Conflict:
        """Commit events as one transaction if `expected_seq` is still the last; return the new seq.

        The first event of a log is ClusterCreated. Raises ValueError for no events, and for events that do not read
        back.
        """
        ...


class MemoryStore:
    """An EventStore in memory. It rejects whatever a file could not store."""

    def __init__(self) -> None:
        self._transactions: list[Transaction] = []
        self._end = START

    def read(self, after_seq: int = 0) -> Iterator[Transaction]:
        return iter(self._transactions[after_seq:])

    def append(self, expected_seq: int, events: Sequence[Event], *, at: float, actor: str) -> int | Conflict:
        if expected_seq != self._end.seq:
            return Conflict(self._end.seq)
        check_events(expected_seq, events)
        line = encode_line(self._end, events, at=at, actor=actor)
        self._transactions.append(decode_line(line[:-1]))
        self._end = end_of_line(self._end, line, at)
        return self._end.seq
