"""Constraints as typed on the command line, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.constraint_syntax import format_constraint, parse_constraint
from iris_cli.core.constraints import Constraint, ConstraintMode, ConstraintOp
from iris_cli.errors import UsageError

EQ, NE, EXISTS, NOT_EXISTS = ConstraintOp.EQ, ConstraintOp.NE, ConstraintOp.EXISTS, ConstraintOp.NOT_EXISTS
GT, GE, LT, LE, IN = ConstraintOp.GT, ConstraintOp.GE, ConstraintOp.LT, ConstraintOp.LE, ConstraintOp.IN


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("region=us-west4", Constraint.of("region", EQ, "us-west4")),
        ("region!=us-west4", Constraint.of("region", NE, "us-west4")),
        ("tpu-worker-id>=1", Constraint.of("tpu-worker-id", GE, 1)),
        ("load>0.5", Constraint.of("load", GT, 0.5)),
        ("n<-3", Constraint.of("n", LT, -3)),
        ("n<=1e3", Constraint.of("n", LE, 1000.0)),
        ("pool", Constraint.of("pool", EXISTS)),
        ("!pool", Constraint.of("pool", NOT_EXISTS)),
        ("taint:bad-disk", Constraint.of("taint:bad-disk", EXISTS)),
        ("region in us-west4,eu-west4", Constraint.of("region", IN, values=["us-west4", "eu-west4"])),
        ("n in 1, '1' ,\"a,b\"", Constraint.of("n", IN, values=[1, "1", "a,b"])),
        (" region = us-west4 ", Constraint.of("region", EQ, "us-west4")),
        ("rack=row 4", Constraint.of("rack", EQ, "row 4")),
        ('pool="8"', Constraint.of("pool", EQ, "8")),
        ("pool='8'", Constraint.of("pool", EQ, "8")),
        ('pool=""', Constraint.of("pool", EQ, "")),
        ("pool=017", Constraint.of("pool", EQ, "017")),
        ("pool=0x10", Constraint.of("pool", EQ, "0x10")),
        ("pool=nan", Constraint.of("pool", EQ, "nan")),
        ("pool=1e999", Constraint.of("pool", EQ, "1e999")),
        ("pool=true", Constraint.of("pool", EQ, True)),
        ("pool=1_000", Constraint.of("pool", EQ, "1_000")),
        ("pool=٣", Constraint.of("pool", EQ, "٣")),  # a digit, but not a decimal one of ASCII
    ],
)
def test_the_forms_that_can_be_typed(text: str, constraint: Constraint) -> None:
    assert parse_constraint(text) == constraint


@pytest.mark.parametrize("text", ["region=us-west4", "!pool", "pool", "n>=1", "region in a,b"])
def test_a_tilde_in_front_only_prefers(text: str) -> None:
    assert parse_constraint("~" + text).mode is ConstraintMode.PREFERRED
    assert parse_constraint(text).mode is ConstraintMode.REQUIRED


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "write key=value"),
        ("~", "write key=value"),
        ("=x", "write key=value"),
        ("region=", 'region=""'),
        ("region==us-west4", "write region=us-west4"),
        ("region=a,b", "write region in a,b"),
        ("region in", "write key=value"),
        ("region in a,,b", "write key=value"),
        ("region not in a", "write key=value"),
        ("tpu worker", "write key=value"),
        ("!pool=x", "write key=value"),
        ("!~pool", "write key=value"),
        ('pool="open', "write key=value"),
        ("n>=many", "write key=value"),
        ("a=b\nc", "write key=value"),
        ("k=" + "x" * 5000, "write key=value"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_type(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_constraint(text)
    assert hint in refused.value.hint
    assert "\n" not in refused.value.message


values = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
modes = st.sampled_from(ConstraintMode)
keys = st.text(min_size=1) | st.sampled_from(["region", "in", "tpu-worker-id", "taint:x", "a=b", "~x", "!x"])


@given(
    st.one_of(
        st.builds(Constraint.of, keys, st.sampled_from([EXISTS, NOT_EXISTS]), mode=modes),
        st.builds(Constraint.of, keys, st.sampled_from([EQ, NE]), values, mode=modes),
        st.builds(Constraint.of, keys, st.sampled_from([GT, GE, LT, LE]), numbers, mode=modes),
        st.builds(
            Constraint.of, keys, st.just(IN), values=st.lists(values, min_size=1, max_size=4), mode=modes
        ),
    )
)
def test_a_formatted_constraint_is_read_back_as_the_same(constraint: Constraint) -> None:
    assert parse_constraint(format_constraint(constraint)) == constraint


@given(st.text())
def test_any_text_is_a_constraint_or_a_usage_error(text: str) -> None:
    try:
        constraint = parse_constraint(text)
    except UsageError:
        return
    assert parse_constraint(format_constraint(constraint)) == constraint


def test_formatting_quotes_only_where_it_must() -> None:
    assert (
        format_constraint(Constraint.of("region", IN, values=["a", "b c", "8", 8])) == 'region in a,b c,"8",8'
    )
    assert format_constraint(Constraint.of("k", NE, 'say "x"')) == 'k!="say \\"x\\""'
