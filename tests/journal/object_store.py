"""A third kind of store, to show that the port allows it: objects that can only be created, never changed.

Any service that creates a key if it is absent will do, and a table with a primary key: one object is one
transaction, its key is its number. Who finds the key taken has decided on an old state. No lock is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from iris_cli.core.events.events import Event, Transaction
from iris_cli.journal.log.position import START, Position
from iris_cli.journal.log.record import (
    Conflict,
    LogRecord,
    check_events,
    decode_line,
    encode_line,
    end_of_line,
)


class Objects(Protocol):
    """What the service does. Both are atomic, and what was created is seen by all from then on."""

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """Whether it was created; False if there is one with that key."""
        ...

    def get(self, key: str) -> bytes | None: ...


class ObjectsInDirectory:
    """The service, played by a directory: `link` is atomic, and refuses a name that is taken."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._drafts = 0

    def create_if_absent(self, key: str, data: bytes) -> bool:
        self._drafts += 1
        draft = self._directory / f"draft-{id(self)}-{self._drafts}"
        draft.write_bytes(data)
        try:
            (self._directory / key).hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def get(self, key: str) -> bytes | None:
        try:
            return (self._directory / key).read_bytes()
        except FileNotFoundError:
            return None


class ObjectStore:
    """An EventStore on such a service. Keeps only where the log ends, as far as it has seen."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._end = START

    def read(self, after_seq: int = 0) -> Iterator[Transaction]:
        """Raises ValueError for an object that is no transaction, or not the one that is due."""
        end = START
        while (found := self._next(end)) is not None:
            record, end = found
            if record.seq > after_seq:
                yield record
        self._end = end

    def append(self, expected_seq: int, events: Sequence[Event], *, at: float, actor: str) -> int | Conflict:
        while (found := self._next(self._end)) is not None:
            self._end = found[1]
        if expected_seq != self._end.seq:
            return Conflict(self._end.seq)
        check_events(expected_seq, events)
        line = encode_line(self._end, events, at=at, actor=actor)
        if not self._objects.create_if_absent(_key(expected_seq + 1), line):
            return Conflict(expected_seq + 1)
        self._end = end_of_line(self._end, line, at)
        return self._end.seq

    def _next(self, after: Position) -> tuple[LogRecord, Position] | None:
        line = self._objects.get(_key(after.seq + 1))
        if line is None:
            return None
        record = decode_line(line[:-1])
        if (record.seq, record.prev) != (after.seq + 1, after.crc):
            raise ValueError(f"the object {_key(after.seq + 1)} is another transaction")
        return record, end_of_line(after, line, record.at)


def _key(seq: int) -> str:
    return f"{seq:012}"
