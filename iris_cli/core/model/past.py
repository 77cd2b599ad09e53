"""Tables that look up what they lack where it was kept: most jobs of a long log are over for good.

A snapshot leaves those jobs in its files. A table reads one entry when it is looked up, and all of them when somebody
goes through the table.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar

from iris_cli.core.ids import JobId, Token

K = TypeVar("K")
V = TypeVar("V")
Found = TypeVar("Found", covariant=True)

if TYPE_CHECKING:  # to define it takes longer than to look anything up
    from typing import Protocol

    class Kept(Protocol[K, Found]):
        """One table as it was when it was kept."""

        def find(self, key: K) -> Found:
            """Return an entry that may not be in memory. Raises KeyError."""
            ...

        def everything(self) -> Iterable[tuple[K, Found]]:
            """Yield all entries of then, in the order of the table: also those that are in memory."""
            ...


class Past:
    """Answers about all that was kept, without a look at each entry."""

    def last_ended(self, most: int) -> Sequence[JobId]:
        """Return so many of the jobs that ended last, or all, in any order."""
        raise NotImplementedError

    def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
        """Return those of the tokens that no attempt of a job in the files had."""
        raise NotImplementedError


class Table(dict[K, V]):
    """A dict that finds what it lacks in what was kept, and holds it from then on.

    `missing` counts the entries that are only there. `in_memory` gives those that the table holds already. Before an
    entry is set, the old one must have been looked up, if there is one.
    """

    __slots__ = ("_dropped", "_kept", "_missing")

    def __init__(self, held: Mapping[K, V], kept: Kept[K, V] | None, missing: int) -> None:
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
        """Take everything into memory, in the order of the whole table."""
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

    def keys(self) -> KeysView[K]:  # type: ignore[override]  # a view all the same
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
    def kept(self) -> Kept[K, V] | None:
        """Where an entry is looked up that is not in memory."""
        return self._kept

    def dropped(self, key: K) -> bool:
        """Return whether an entry that was kept was deleted."""
        return key in self._dropped

    def copy(self) -> Table[K, V]:
        """Copy only what is in memory."""
        made = Table(dict(dict.items(self)), self._kept, self._missing)
        made._dropped = self._dropped
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and dict(self.items()) == dict(other.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as of any dict

    # Those of dict see only what is in memory, or don't count what they put there. Nobody needs them.
    __or__ = __ior__ = __reversed__ = update = clear = popitem = None  # type: ignore[assignment]  # so that a call fails


_NOTHING = object()


def in_memory(table: dict[K, V]) -> ValuesView[V]:
    """Return the entries that a table holds now: all of them, unless some were kept elsewhere."""
    return dict.values(table)
