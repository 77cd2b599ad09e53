"""Many names in few words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.render.tables import fold

CASES = [
    ([], ""),
    (["v5a-0"], "v5a-0"),
    (["v5a-0", "v5a-1", "v5a-2"], "v5a-[0-2]"),
    (["v5a-7", "v5a-0", "v5a-1"], "v5a-[0-1,7]"),
    (["v5a-0", "v5b-0", "v5a-1"], "v5a-[0-1], v5b-0"),
    (["cpu", "cpu-0", "cpu-1"], "cpu, cpu-[0-1]"),
    (["w1", "w2", "w"], "w[1-2], w"),
    (["w-01", "w-02"], "w-0[1-2]"),
    (["w-9", "w-10"], "w-[9-10]"),
    (["v5a-0", "v5a-0"], "v5a-0"),
    ([f"w-{number}" for number in range(0, 20, 2)], "w-[0,2,4,6,8,10,…]"),
    (list("abcdefgh"), "a, b, c, d, e, f, …"),
]


@pytest.mark.parametrize(("names", "folded"), CASES)
def test_names_are_folded_by_their_last_number(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def test_fewer_parts_are_shown_where_there_is_less_room() -> None:
    assert fold(["w-0", "w-2", "w-4", "x", "y"], max_parts=2) == "w-[0,2,…], x, …"


@given(st.sets(st.integers(0, 40), min_size=2, max_size=12))
def test_folding_loses_no_number_and_invents_none(numbers: set[int]) -> None:
    words = fold((f"w-{number}" for number in numbers), max_parts=99).removeprefix("w-[").removesuffix("]")
    found: set[int] = set()
    for run in words.split(","):
        first, _, last = run.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    assert found == numbers
