"""Attribute values and constraints: types are part of identity, and nothing in a cycle ever raises."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.constraints import (
    AttributeValue,
    Constraint,
    ConstraintMode,
    ConstraintOp,
    constraints_from_json,
    constraints_to_json,
    taint_key,
)

EQ, NE, EXISTS, NOT_EXISTS = ConstraintOp.EQ, ConstraintOp.NE, ConstraintOp.EXISTS, ConstraintOp.NOT_EXISTS
GT, GE, LT, LE, IN = ConstraintOp.GT, ConstraintOp.GE, ConstraintOp.LT, ConstraintOp.LE, ConstraintOp.IN
ORDERING = (GT, GE, LT, LE)

raw_values = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
modes = st.sampled_from(ConstraintMode)
keys = st.text(min_size=1)
constraints = st.one_of(
    st.builds(Constraint.of, keys, st.sampled_from([EXISTS, NOT_EXISTS]), mode=modes),
    st.builds(Constraint.of, keys, st.sampled_from([EQ, NE]), raw_values, mode=modes),
    st.builds(Constraint.of, keys, st.sampled_from(ORDERING), numbers, mode=modes),
    st.builds(Constraint.of, keys, st.just(IN), values=st.lists(raw_values, min_size=1), mode=modes),
)


def test_one_the_text_one_and_one_point_zero_are_three_values() -> None:
    values = [AttributeValue(1), AttributeValue("1"), AttributeValue(1.0)]
    assert len(dict.fromkeys(values)) == 3
    assert all((a == b) == (a is b) for a in values for b in values)


def test_equal_values_have_equal_hashes_and_are_the_same_key() -> None:
    assert {AttributeValue("a"): 7}[AttributeValue("a")] == 7
    assert AttributeValue("a") != "a"


def test_zero_has_no_sign() -> None:
    assert str(AttributeValue(-0.0)) == "0.0"


def test_a_boolean_becomes_text() -> None:
    assert AttributeValue(True) == AttributeValue("true")
    assert AttributeValue(False).value == "false"


def test_members_of_an_enum_are_equal_to_their_plain_value() -> None:
    assert AttributeValue(ConstraintOp.EQ) == AttributeValue("EQ")
    assert type(AttributeValue(ConstraintOp.EQ).value) is str


@pytest.mark.parametrize(
    "odd",
    [math.nan, math.inf, -math.inf, None, [], b"x", 10**1000, -(10**1000)],
    ids=lambda odd: repr(odd)[:9],
)
def test_what_is_neither_text_nor_a_finite_number_is_refused(odd: Any) -> None:
    with pytest.raises(ValueError, match="attribute value"):
        AttributeValue(odd)


@given(
    st.lists(st.text()) | st.lists(st.integers()) | st.lists(st.floats(allow_nan=False, allow_infinity=False))
)
def test_values_of_one_type_sort_like_their_raw_values(raw: list[Any]) -> None:
    assert [value.value for value in sorted(map(AttributeValue, raw))] == sorted(raw)


@pytest.mark.parametrize(("a", "b"), [(1, "1"), (1, 1.0), (1.0, "1")])
def test_values_of_two_types_have_no_order(a: str | float, b: str | float) -> None:
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        with pytest.raises(TypeError):
            compare(AttributeValue(a), AttributeValue(b))


def test_values_and_constraints_survive_pickling_and_cannot_be_changed() -> None:
    constraint = Constraint.of("pool", IN, values=["a", 1])
    assert pickle.loads(pickle.dumps(constraint)) == constraint
    with pytest.raises(AttributeError):
        constraint.key = "other"  # type: ignore[misc]  # the point of the test
    value = constraint.values[0]
    with pytest.raises(AttributeError):
        value.value = "b"
    with pytest.raises(AttributeError):
        del value.value
    assert copy.deepcopy(value) == value == AttributeValue("a")


@pytest.mark.parametrize("raw", ["us-west4", 3, 2.5, True, AttributeValue("x")])
def test_the_constructor_converts_raw_values(raw: Any) -> None:
    worker = {"k": AttributeValue(raw) if not isinstance(raw, AttributeValue) else raw}
    one, several = Constraint("k", EQ, raw), Constraint("k", IN, values=[raw, "other"])  # type: ignore[arg-type]  # the point
    assert (one, several) == (Constraint.of("k", EQ, raw), Constraint.of("k", IN, values=[raw, "other"]))
    assert one.matches(worker)
    assert several.matches(worker)
    assert len({one, several}) == 2


def test_the_constructor_checks_raw_values_operators_and_modes() -> None:
    assert Constraint("n", GE, 1).matches({"n": AttributeValue(1.5)})  # type: ignore[arg-type]  # the point
    assert not Constraint("n", "GE", 2, (), "PREFERRED").required  # type: ignore[arg-type]  # the point
    wrong: list[tuple[Any, ...]] = [
        ("GE", "1"),
        (EQ, math.nan),
        (IN, None, "text"),
        ("NEAR", 1),
        (EQ, 1, (), "often"),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"k|attribute value|valid"):
            Constraint("k", *arguments)


FOUND = (None, "5", "x", True, "true", 5, 6, 5.0, 5.5)
TABLE: list[tuple[ConstraintOp, Any, str]] = [
    #             absent "5" "x" True "true" 5  6  5.0 5.5
    (EQ, "5", "     -     +   -   -     -    -  -   -   -"),
    (EQ, "x", "     -     -   +   -     -    -  -   -   -"),
    (EQ, True, "    -     -   -   +     +    -  -   -   -"),
    (EQ, 5, "       -     -   -   -     -    +  -   -   -"),
    (EQ, 5.0, "     -     -   -   -     -    -  -   +   -"),
    (NE, "5", "     -     -   +   +     +    +  +   +   +"),
    (NE, "x", "     -     +   -   +     +    +  +   +   +"),
    (NE, True, "    -     +   +   -     -    +  +   +   +"),
    (NE, 5, "       -     +   +   +     +    -  +   +   +"),
    (NE, 5.0, "     -     +   +   +     +    +  +   -   +"),
    (EXISTS, None, "-     +   +   +     +    +  +   +   +"),
    (NOT_EXISTS, None, "+ -   -   -     -    -  -   -   -"),
    (GT, 5, "       -     -   -   -     -    -  +   -   +"),
    (GT, 5.0, "     -     -   -   -     -    -  +   -   +"),
    (GT, 4.5, "     -     -   -   -     -    +  +   +   +"),
    (GE, 5, "       -     -   -   -     -    +  +   +   +"),
    (GE, 5.5, "     -     -   -   -     -    -  +   -   +"),
    (LT, 5, "       -     -   -   -     -    -  -   -   -"),
    (LT, 5.5, "     -     -   -   -     -    +  -   +   -"),
    (LT, 6.0, "     -     -   -   -     -    +  -   +   +"),
    (LE, 5, "       -     -   -   -     -    +  -   +   -"),
    (LE, 5.0, "     -     -   -   -     -    +  -   +   -"),
    (LE, 6, "       -     -   -   -     -    +  +   +   +"),
    (IN, ("5",), "  -     +   -   -     -    -  -   -   -"),
    (IN, (5,), "    -     -   -   -     -    +  -   -   -"),
    (IN, (5.0,), "  -     -   -   -     -    -  -   +   -"),
    (IN, (True,), " -     -   -   +     +    -  -   -   -"),
    (IN, (5, "x"), "-     -   +   -     -    +  -   -   -"),
    (IN, ("5", 5.5, True), "- +   -   +     +    -  -   -   +"),
]


@pytest.mark.parametrize(("op", "operand", "satisfied"), TABLE)
def test_every_operator_compares_every_type_as_the_table_says(
    op: ConstraintOp, operand: Any, satisfied: str
) -> None:
    constraint = Constraint.of("k", op, values=operand) if op is IN else Constraint.of("k", op, operand)
    for found, sign in zip(FOUND, satisfied.split(), strict=True):
        worker = {} if found is None else {"k": AttributeValue(found)}
        assert constraint.matches(worker) is (sign == "+"), found


def test_every_operator_is_in_the_table_with_every_type_that_it_takes() -> None:
    there = {(op, type(each)) for op, operand, _ in TABLE for each in (operand if op is IN else (operand,))}
    of_values = {(op, kind) for op in (EQ, NE, IN) for kind in (str, bool, int, float)}
    assert there == of_values | {(op, kind) for op in ORDERING for kind in (int, float)} | {
        (op, type(None)) for op in (EXISTS, NOT_EXISTS)
    }


@given(constraints, st.dictionaries(keys, raw_values.map(AttributeValue), max_size=3), raw_values)
def test_no_constraint_ever_raises_in_a_cycle(
    constraint: Constraint, attributes: dict[str, AttributeValue], value: Any
) -> None:
    for worker in (attributes, {**attributes, constraint.key: AttributeValue(value)}):
        assert constraint.matches(worker) in (True, False)
        assert isinstance(constraint.type_clash(worker), str)


def test_values_are_compared_exactly() -> None:
    assert not Constraint.of("zone", EQ, "US-West4-a").matches({"zone": AttributeValue("us-west4-a")})


@pytest.mark.parametrize(
    ("op", "value", "values"),
    [
        (EXISTS, "x", ()),
        (NOT_EXISTS, None, ("x",)),
        (EQ, None, ()),
        (EQ, "x", ("y",)),
        (GT, None, ()),
        (IN, None, ()),
        (IN, "x", ("x",)),
        (IN, None, "abc"),
        (EQ, math.nan, ()),
        (IN, None, (1, math.inf)),
        *((op, "5", ()) for op in ORDERING),
        *((op, True, ()) for op in ORDERING),
    ],
)
def test_wrong_arity_or_type_is_refused_when_the_constraint_is_made(
    op: ConstraintOp, value: Any, values: Any
) -> None:
    with pytest.raises(ValueError, match=r"'k'|attribute value"):
        Constraint.of("k", op, value, values)


def test_a_constraint_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key"):
        Constraint.of("", EXISTS)


@pytest.mark.parametrize(
    ("constraint", "found", "words"),
    [
        (Constraint.of("n", GE, 1), "3", "n: the worker has text '3', the constraint integer 1"),
        (Constraint.of("n", EQ, 1), 1.0, "n: the worker has decimal 1.0, the constraint integer 1"),
        (
            Constraint.of("n", IN, values=["1", "2"]),
            1,
            "n: the worker has integer 1, the constraint text '1' or text '2'",
        ),
        (Constraint.of("n", GE, 1), 0.5, ""),
        (Constraint.of("n", EQ, 1), 2, ""),
        (Constraint.of("n", IN, values=["1", 2]), 1, ""),
        (Constraint.of("n", NOT_EXISTS), 1, ""),
    ],
)
def test_a_clash_of_types_is_named(constraint: Constraint, found: str | float, words: str) -> None:
    assert constraint.type_clash({"n": AttributeValue(found)}) == words
    assert constraint.type_clash({}) == ""


def test_a_taint_is_an_attribute() -> None:
    assert taint_key("bad-disk") == "taint:bad-disk"


@given(st.lists(constraints, max_size=5))
def test_json_keeps_every_constraint_and_the_type_of_every_value(some: list[Constraint]) -> None:
    again = constraints_from_json(constraints_to_json(some))
    assert again == some
    assert [[type(v.value) for v in c.operands] for c in again] == [
        [type(v.value) for v in c.operands] for c in some
    ]


def test_json_is_short_and_readable() -> None:
    some = [
        Constraint.of("pool", EQ, "a"),
        Constraint.of("n", IN, values=[1, 1.0], mode=ConstraintMode.PREFERRED),
    ]
    assert constraints_to_json(some) == (
        '[{"key":"pool","op":"EQ","value":"a"},{"key":"n","op":"IN","values":[1,1.0],"mode":"PREFERRED"}]'
    )


def test_a_json_boolean_becomes_text() -> None:
    assert constraints_from_json('[{"key":"p","op":"EQ","value":true}]') == [Constraint.of("p", EQ, "true")]


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{}",
        "[1]",
        "[[]]",
        "nonsense",
        '[{"key":"k"}]',
        '[{"key":1,"op":"EXISTS"}]',
        '[{"key":"k","op":"LIKE"}]',
        '[{"key":"k","op":[]}]',
        '[{"key":"k","op":"EXISTS","extra":1}]',
        '[{"key":"k","op":"EXISTS","mode":"MAYBE"}]',
        '[{"key":"k","op":"EQ","value":NaN}]',
        '[{"key":"k","op":"EQ","value":-Infinity}]',
        '[{"key":"k","op":"EQ","value":1e999}]',
        '[{"key":"k","op":"EQ","value":{}}]',
        '[{"key":"k","op":"IN","values":"abc"}]',
        '[{"key":"k","op":"IN","values":[["a"]]}]',
        '[{"key":"k","op":"EQ","value":' + "9" * 5000 + "}]",
        "[" * 100_000,
        "[" + " " * (1 << 20) + "]",
    ],
    ids=lambda raw: raw[:40],
)
def test_anything_odd_in_json_is_a_value_error(raw: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        constraints_from_json(raw)
