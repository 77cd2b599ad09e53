"""Amounts packed into one integer say the same as the amounts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.model.worker import Amounts
from iris_cli.core.scheduling.context import Packing
from iris_cli.core.scheduling.sets import mask_of, positions_of

anything = st.one_of(st.integers(-3, 3), st.integers(-(1 << 70), 1 << 70))
something = st.one_of(st.integers(0, 3), st.integers(0, 1 << 70))
stocks = st.builds(Amounts, anything, anything, anything, anything)
needs = st.builds(Amounts, something, something, something, something)


@given(stocks, needs, st.lists(needs, max_size=2))
def test_what_is_left_covers_a_need_if_all_signs_stay_set(
    left: Amounts, need: Amounts, others: list[Amounts]
) -> None:
    packing = Packing([left, need, *others])
    rest = packing.pack_free(left) - packing.pack(need).packed
    assert (rest & packing.signs == packing.signs) is left.covers(need)
    assert packing.unpack(rest) == Amounts(*(have - wanted for have, wanted in zip(left, need, strict=True)))


@given(stocks)
def test_what_was_packed_comes_out_again(left: Amounts) -> None:
    packing = Packing([left])
    assert packing.unpack(packing.pack_free(left)) == left


@given(needs)
def test_only_what_is_taken_is_looked_at(need: Amounts) -> None:
    packed = Packing([need]).pack(need)
    assert packed.nonzero == tuple(number for number, amount in enumerate(need) if amount)
    assert packed.signs.bit_count() == len(packed.nonzero)


@given(st.lists(st.integers(0, 300), unique=True))
def test_a_set_of_positions_has_just_these_members(positions: list[int]) -> None:
    assert list(positions_of(mask_of(positions))) == sorted(positions)


def test_neighbours_in_any_order_are_a_set_too() -> None:
    assert mask_of([7, 5, 6]) == 0b11100000
