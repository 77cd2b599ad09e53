"""A slip of the pen in a constraint is answered with what was probably meant."""

from __future__ import annotations

import pytest

from iris_cli.core.constraint_syntax import parse_constraint, typo_warnings
from iris_cli.core.constraints import AttributeValue

FLEET = [
    {
        "region": AttributeValue("us-west4"),
        "pool": AttributeValue("large"),
        "tpu-worker-id": AttributeValue(1),
    },
    {
        "region": AttributeValue("us-east1"),
        "pool": AttributeValue("small"),
        "tpu-worker-id": AttributeValue(2),
        "device-type": AttributeValue("tpu"),
    },
]


@pytest.mark.parametrize(
    ("typed", "warnings"),
    [
        ("region=US-West4", ["no worker has region 'US-West4'; did you mean 'us-west4'?"]),
        ("region in us-west4,us-est1", ["no worker has region 'us-est1'; did you mean 'us-east1'?"]),
        ("regoin=us-west4", ["no worker has an attribute 'regoin'; did you mean 'region'?"]),
        ("tpu-worker-id='1'", ["no worker has tpu-worker-id '1'; did you mean the integer 1?"]),
        ("region=us-west4", []),
        ("region=moon", []),
        ("!regoin", []),
        ("region!=US-West4", []),
        ("tpu-worker-id>=7", []),
        ("device-type=cpu", []),  # no slip of the pen for tpu
        ("device-type=TPU", ["no worker has device-type 'TPU'; did you mean 'tpu'?"]),
    ],
)
def test_only_what_looks_like_a_slip_is_warned_about(typed: str, warnings: list[str]) -> None:
    assert list(typo_warnings([parse_constraint(typed)], FLEET)) == warnings


def test_an_empty_fleet_knows_no_better() -> None:
    assert list(typo_warnings([parse_constraint("region=us-west4")], [])) == []
