"""What is settled and needs no memory: tables that look up what they lack where it was kept.

Most jobs of a long log are over for good. Whoever keeps what was replayed (the snapshot of a log) leaves those where
they are; here is what makes the tables complete for everybody all the same.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from iris_cli.core.ids import JobId, Token

K = TypeVar("K")
V = TypeVar("V")
Found = TypeVar("Found", covariant=True)


if TYPE_CHECKING:  # to define these takes longer than to look anything up

    class Kept(Protocol[K, Found]):
        """One table as it was when it was kept."""

        def __len__(self) -> int:
            """How many entries are only here."""
            ...

        def __iter__(self) -> Iterator[K]:
            """All keys of then, in the order of the table: also those of entries that are in memory."""
            ...

        def find(self, key: K) -> Found:
            """An entry that is only here. Raises KeyError."""
            ...

        def find_all(self) -> None:
            """Prepare for being asked for every entry."""
            ...

    class Past(Protocol):
        """What can be asked of everything that was kept, without looking at each entry."""

        def last_ended(self, most: int) -> Sequence[JobId]:
            """The jobs that ended last, in any order, of those that were over: so many, or all that there are."""
            ...

        def foreign(self, tokens: Iterable[Token]) -> tuple[Token, ...]:
            """Those of the tokens that no attempt of a job that was over had."""
            ...


class Table(dict[K, V]):
    """A dict that finds what it lacks in what was kept, and holds it from then on.

    Looking up what is in memory is as fast as in any dict. Going through all of it takes all of it into memory:
    `in_memory` gives what is there already. Whoever sets an entry has looked at the old one before, if there is one.
    """

    __slots__ = ("_dropped", "_found", "_kept")

    def __init__(self, held: Mapping[K, V], kept: Kept[K, V]) -> None:
        super().__init__(held)
        self._kept = kept
        self._found = 0  # of the entries that were only kept, how many have been in here
        self._dropped: frozenset[K] = frozenset()

    def __missing__(self, key: K) -> V:
        if key in self._dropped:
            raise KeyError(key)
        value = self[key] = self._kept.find(key)
        self._found += 1
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(key, _NOTHING) is not _NOTHING

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __len__(self) -> int:
        return super().__len__() + len(self._kept) - self._found

    def __iter__(self) -> Iterator[K]:
        then = dict.fromkeys(self._kept)
        now = set(super().__iter__())
        yield from (key for key in then if key in now or key not in self._dropped)
        yield from (key for key in tuple(super().__iter__()) if key not in then)

    def keys(self) -> KeysView[K]:  # type: ignore[override]  # a view all the same
        return KeysView(self)

    def values(self) -> ValuesView[V]:  # type: ignore[override]  # as above
        self._kept.find_all()
        return ValuesView(self)

    def items(self) -> ItemsView[K, V]:  # type: ignore[override]  # as above
        self._kept.find_all()
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

    def copy(self) -> Table[K, V]:
        """Only what is in memory is copied."""
        made = Table(dict(dict.items(self)), self._kept)
        made._found, made._dropped = self._found, self._dropped
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
    """The entries that a table holds now: all of them, unless some were kept elsewhere."""
    return dict.values(table)
