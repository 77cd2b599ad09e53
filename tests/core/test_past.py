"""Tables of which a part is kept elsewhere behave like dicts that hold all entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from threading import RLock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.model.cluster import Table, values_in_memory


class Shelf:
    """Numbers by their names. `order` says where all of them stood, `there` are those that are only here."""

    def __init__(self, order: tuple[str, ...], there: Mapping[str, int]) -> None:
        self._order, self._there = order, there
        self.asked: list[str] = []

    def find(self, key: str) -> int | None:
        self.asked.append(key)
        return self._there.get(key)

    def all_entries(self) -> Iterator[tuple[str, int]]:
        self.asked.append("*")
        return ((name, WHOLE[name]) for name in self._order)


NAMES = ("a", "b", "c", "d", "e")
WHOLE = {name: number for number, name in enumerate(NAMES)}


def split(held: set[str]) -> tuple[Table[str, int], Shelf]:
    shelf = Shelf(NAMES, {name: WHOLE[name] for name in NAMES if name not in held})
    return Table({name: WHOLE[name] for name in NAMES if name in held}, shelf, len(NAMES) - len(held)), shelf


def test_what_is_in_memory_is_found_without_asking_the_shelf() -> None:
    table, shelf = split({"b", "d"})
    assert (table["b"], table.get("d"), "b" in table, len(table)) == (1, 3, True, 5)
    assert list(values_in_memory(table)) == [1, 3]
    assert shelf.asked == []


def test_an_entry_may_be_fetched_while_the_entries_in_memory_are_read() -> None:
    table, _ = split({"b", "d"})
    assert [(value, table["a"], table["e"]) for value in values_in_memory(table)] == [(1, 0, 4), (3, 0, 4)]


def test_what_is_not_in_memory_is_fetched_once() -> None:
    table, shelf = split({"b"})
    assert [table["c"], table["c"], table.get("c")] == [2, 2, 2]
    assert shelf.asked == ["c"]


def test_a_copy_does_not_change_with_the_original() -> None:
    table, _ = split({"b"})
    copy = table.copy()
    table["f"] = 6
    del table["b"], table["c"]
    assert dict(copy.items()) == WHOLE
    assert dict(table.items()) == {"a": 0, "d": 3, "e": 4, "f": 6}


def _keys(table: dict[str, int]) -> object:
    return list(table.keys()), list(table), sorted(table)


Act = tuple[str, Any]
ACTS: Mapping[str, Any] = {
    "get": lambda table, name: table.get(name, 7),
    "in": lambda table, name: name in table,
    "index": lambda table, name: [table[name] for _ in range(1) if name in table],
    "change": lambda table, name: table.__setitem__(name, table.get(name, 9) + 10),
    "pop": lambda table, name: table.pop(name, None),
    "setdefault": lambda table, name: table.setdefault(name, 8),
    "len": lambda table, _: (len(table), bool(table)),
    "keys": lambda table, _: _keys(table),
    "values": lambda table, _: list(table.values()),
    "items": lambda table, _: list(table.items()),
    "as a dict": lambda table, _: ({**table}, dict(table)),
}
names = st.sampled_from((*NAMES, "f"))


@given(
    st.sets(st.sampled_from(NAMES)), st.lists(st.tuples(st.sampled_from(sorted(ACTS)), names)), st.booleans()
)
def test_whatever_is_done_to_it_it_is_the_whole_dict(held: set[str], acts: list[Act], copied: bool) -> None:
    table, _ = split(held)
    whole: dict[str, int] = dict(WHOLE)
    for name, key in acts:
        expected, found = ACTS[name](whole, key), ACTS[name](table, key)
        if name in ("keys", "values", "items"):  # what comes back after it was dropped stands where it was
            expected, found = map(_in_any_order, (expected, found))
        assert found == expected, (name, key)
        table = table.copy() if copied else table
    assert table == whole
    assert whole == table
    assert (table != whole) is (whole != table) is False


def _in_any_order(found: Any) -> list[Any]:
    return sorted(map(repr, found[0] if isinstance(found, tuple) else found))


@given(st.sets(st.sampled_from(NAMES)), st.lists(names, max_size=4))
def test_it_keeps_the_order_of_the_whole(held: set[str], looked_up: list[str]) -> None:
    table, _ = split(held)
    for name in looked_up:
        table.get(name)
    table["f"] = 5
    assert list(table.items()) == [*WHOLE.items(), ("f", 5)]


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table | {"f": 5},
        lambda table: table.update(a=1),
        lambda table: table.popitem(),
        lambda table: table.clear(),
        reversed,
    ],
)
def test_what_a_dict_would_do_with_what_is_in_memory_alone_is_refused(act: Callable[[Any], object]) -> None:
    table, _ = split({"b"})
    with pytest.raises(TypeError):
        act(table)
    assert table == WHOLE


def test_what_is_nowhere_is_a_key_error() -> None:
    table, _ = split({"b"})
    with pytest.raises(KeyError):
        table["x"]
    with pytest.raises(KeyError):
        del table["x"]
    with pytest.raises(KeyError):
        table.pop("x")


def test_threads_read_a_table_at_once() -> None:
    names = tuple(f"job-{number}" for number in range(200))
    calls: list[str] = []

    class Stored:
        def find(self, key: str) -> int:
            calls.append(key)
            time.sleep(0)  # lets another thread run
            return int(key.removeprefix("job-"))

        def all_entries(self) -> Iterator[tuple[str, int]]:
            for name in names:
                time.sleep(0)
                yield name, int(name.removeprefix("job-"))

    for _ in range(20):
        calls.clear()
        table = Table({}, Stored(), len(names), RLock())
        with ThreadPoolExecutor(8) as threads:
            lookups = [threads.submit(itemgetter(*names[::3]), table) for _ in range(7)]
            whole = threads.submit(list, table)
        assert [lookup.result() for lookup in lookups] == [tuple(range(0, 200, 3))] * 7
        assert (tuple(whole.result()), len(table)) == (names, 200)
        assert len(calls) == len(set(calls))
