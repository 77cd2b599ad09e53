"""Tables that read ended jobs from a snapshot only on demand, because most jobs of a long log have ended.

A table reads one entry when it is looked up, and all entries when it is iterated over.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar

from iris_cli.core.ids import JobId, Token

K = TypeVar("K")
V = TypeVar("V")
Found = TypeVar("Found", covariant=True)

if TYPE_CHECKING:  # the definition of a Protocol takes longer than a look-up
    from typing import Protocol

    class StoredTable(Protocol[K, Found]):
        """One table as stored in a snapshot."""

        def find(self, key: K) -> Found:
            """Return a stored entry. Raises KeyError."""
            ...

        def everything(self) -> Iterable[tuple[K, Found]]:
            """Yield all stored entries in the order of the table, including entries that are in memory."""
            ...


class Past:
    """Queries about all stored jobs that are answered without reading each job."""

    def last_ended(self, limit: int) -> Sequence[JobId]:
        """Return up to `limit` of the jobs that ended last, in any order."""
        raise NotImplementedError

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        """Return the tokens that no attempt of a stored job had."""
        raise NotImplementedError


class Table(dict[K, V]):
    """A dict that reads missing entries from a stored table, and keeps them in memory.

    `missing` is the number of entries that are not in memory. The function `in_memory` returns the entries in memory.
    An existing entry must be looked up before it is replaced.
    """

    __slots__ = ("_dropped", "_kept", "_missing")

    def __init__(self, held: Mapping[K, V], kept: StoredTable[K, V] | None, missing: int) -> None:
        super().__init__(held)
        self._kept = kept
        self._missing = missing
        self._dropped: frozenset[K] = frozenset()

    def __missing__(self, key: K) -> V:
        if self._kept is None or key in self._dropped:
            raise KeyError(key)
        value = self[key] = self._kept.find(key)
        self._missing -= 1
        return value

    def _complete(self) -> None:
        """Read all entries into memory, in the order of the whole table."""
        if self._kept is None:
            return
        held = dict(dict.items(self))
        whole = {key: value for key, value in self._kept.everything() if key not in self._dropped} | held
        self._kept, self._missing = None, 0
        super().clear()
        super().update(whole)

    def __contains__(self, key: object) -> bool:
        return self.get(key, _NOTHING) is not _NOTHING

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __len__(self) -> int:
        return super().__len__() + self._missing

    def __iter__(self) -> Iterator[K]:
        self._complete()
        return super().__iter__()

    def keys(self) -> KeysView[K]:  # type: ignore[override]  # still a view
        self._complete()
        return KeysView(self)

    def values(self) -> ValuesView[V]:  # type: ignore[override]  # as above
        self._complete()
        return ValuesView(self)

    def items(self) -> ItemsView[K, V]:  # type: ignore[override]  # as above
        self._complete()
        return ItemsView(self)

    def pop(self, key: Any, *default: Any) -> Any:
        if key not in self and default:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        super().__delitem__(key)
        self._dropped |= {key}

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    @property
    def kept(self) -> StoredTable[K, V] | None:
        """The stored table from which missing entries are read."""
        return self._kept

    def dropped(self, key: K) -> bool:
        """Return whether a stored entry was deleted."""
        return key in self._dropped

    def copy(self) -> Table[K, V]:
        """Copy only the entries in memory."""
        table = Table(dict(dict.items(self)), self._kept, self._missing)
        table._dropped = self._dropped
        return table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and dict(self.items()) == dict(other.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as for any dict

    # These methods of dict would ignore stored entries or not count new entries. iris does not use them.
    __or__ = __ior__ = __reversed__ = update = clear = popitem = None  # type: ignore[assignment]  # so that a call fails


_NOTHING = object()


def in_memory(table: dict[K, V]) -> ValuesView[V]:
    """Return the entries of a table that are in memory. For a plain dict these are all entries."""
    return dict.values(table)
