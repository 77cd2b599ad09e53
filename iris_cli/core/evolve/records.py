"""How records are made and changed: copied, because others may hold them; in their place where nobody else can.

Decisions compare what was with what is, so that a draft copies. A replay shows nobody anything before its end: what
it has made or copied itself it may overwrite.
"""

from __future__ import annotations

from typing import Any, TypeVar

from iris_cli.core.lazy_dataclass import replace, setters

T = TypeVar("T")


class Records:
    """Changes records by copying them."""

    def made(self, record: T) -> T:
        """The record, which was made just now and is in nobody else's hands."""
        return record

    def change(self, record: T, /, **changes: Any) -> T:
        """The record with other contents in some fields: it has to stand in the tables from now on."""
        return replace(record, **changes)


class OwnRecords(Records):
    """Changes records in their place once they are its own: for as long as nobody else sees them."""

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}  # by identity, which is theirs alone while they are kept here

    def made(self, record: T) -> T:
        self._own[id(record)] = record
        return record

    def change(self, record: T, /, **changes: Any) -> T:
        if id(record) not in self._own:
            return self.made(replace(record, **changes))
        kind: type = type(record)
        set_field = setters(kind)
        for name, value in changes.items():
            set_field[name](record, value)
        return record


COPIES = Records()
