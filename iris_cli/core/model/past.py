"""Tables that read ended jobs from a snapshot only on demand, because most jobs of a long log have ended.

A look-up reads one entry. An iteration over a table reads all entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from iris_cli.core.ids import JobId, Token

K = TypeVar("K")
V = TypeVar("V")
Found = TypeVar("Found", covariant=True)

if TYPE_CHECKING:  # the definition of a Protocol takes longer than a look-up
    from typing import Protocol

    class StoredTable(Protocol[K, Found]):
        """One table as stored in a snapshot."""

        def find(self, key: K) -> Found | None:
            """Return a stored entry; None if there is no such entry."""
            ...

        def all_entries(self) -> Iterable[tuple[K, Found]]:
            """Yield all stored entries in the order of the table, including entries that are in memory."""
            ...


class Past:
    """Queries about all stored jobs that are answered without reading each job."""

    def last_ended(self, limit: int) -> Sequence[JobId]:
        """Return up to `limit` of the jobs that ended last, in any order."""
        raise NotImplementedError

    def unknown_tokens(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        """Return the tokens that no attempt of a stored job had."""
        raise NotImplementedError


class Table(dict[K, V]):
    """A dict that reads missing entries from the stored table `kept`, and keeps them in memory. No value is None.

    `missing` is the number of entries that are not in memory, `dropped` are the keys of deleted stored entries. The
    function `values_in_memory` returns the entries in memory. Look up an existing entry before you replace it, because
    otherwise `len` counts it twice.
    Threads may read a table at the same time if it has a reentrant `lock`, which is held while stored entries are read.
    """

    __slots__ = ("_lock", "_missing", "dropped", "kept")

    def __init__(
        self,
        loaded: Mapping[K, V],
        kept: StoredTable[K, V] | None,
        missing: int,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        super().__init__(loaded)
        self.kept = kept
        self._missing = missing
        self._lock = lock or nullcontext()
        self.dropped: frozenset[K] = frozenset()

    def get(self, key: Any, default: Any = None) -> Any:
        if (value := super().get(key)) is None:
            with self._lock:
                value = super().get(key)  # another thread may have read it
                if value is None and self.kept is not None and key not in self.dropped:
                    value = self.kept.find(key)
                    if value is not None:
                        self[key] = value
                        self._missing -= 1
        return default if value is None else value

    def __missing__(self, key: K) -> V:
        if (value := self.get(key)) is None:
            raise KeyError(key)
        found: V = value
        return found

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        with self._lock:
            return super().__len__() + self._missing

    def __iter__(self) -> Iterator[K]:
        """Read all entries into memory, and iterate over them in the order of the whole table."""
        with self._lock:
            if self.kept is not None:
                loaded = dict(dict.items(self))
                entries = {
                    key: value for key, value in self.kept.all_entries() if key not in self.dropped
                } | loaded
                super().clear()
                super().update(entries)
                self.kept, self._missing = None, 0
        return super().__iter__()

    def __delitem__(self, key: K) -> None:
        self[key]  # reads the entry; raises KeyError
        super().__delitem__(key)
        self.dropped |= {key}

    def pop(self, key: Any, *default: Any) -> Any:
        if key not in self and default:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def copy(self) -> Table[K, V]:
        """Copy only the entries in memory."""
        with self._lock:
            table = Table(dict(dict.items(self)), self.kept, self._missing, self._lock)
            table.dropped = self.dropped
        return table

    def __ne__(self, other: object) -> bool:
        return not self == other

    # The methods of dict ignore stored entries. The methods of Mapping call only the methods above and `self[key]`.
    __eq__ = Mapping.__eq__
    keys, values, items = Mapping.keys, Mapping.values, Mapping.items  # type: ignore[assignment]  # typed for any Mapping
    setdefault = MutableMapping.setdefault
    __hash__ = None  # as for any dict

    # The following methods of dict would make `len` wrong. iris does not use them.
    __or__ = __ior__ = __reversed__ = update = clear = popitem = None  # type: ignore[assignment]  # so that a call fails


def values_in_memory(table: dict[K, V]) -> list[V]:
    """Return the entries of a table that are in memory. For a plain dict these are all entries."""
    # A copy, because a look-up, also in another thread, adds entries to the table.
    return list(dict.values(table))
