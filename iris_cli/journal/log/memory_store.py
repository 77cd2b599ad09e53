"""The log in memory: for plans that are not to be kept, and for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iris_cli.core.events.events import Event, Transaction
from iris_cli.journal.log.position import START
from iris_cli.journal.log.record import decode_line, encode_line, end_of_line
from iris_cli.journal.log.store import Conflict, check_events


class MemoryStore:
    """An EventStore that forgets with the process. What a file could not keep is refused here too."""

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
