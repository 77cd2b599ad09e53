"""What holds of every plan, whatever has become of the jobs of a cluster so far."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.support.literal_plan import LiteralPlan
from tests.support.literal_reasons import kinds_of
from tests.support.random_cluster import State, states
from tests.support.random_fleet import NOW

MANY, VERY_MANY = settings(max_examples=30), settings(max_examples=8_000)


def assert_that_the_rules_read_literally_plan_the_same(state: State) -> None:
    literal = LiteralPlan(state.cluster, NOW, state.gang_reserve_after, 300.0, state.without_secrets)
    literal.decide()
    found = state.plan()
    assert [
        (str(each.task), each.worker, each.gpus) for each in found.assignments
    ] == literal.cycle.placements
    reservations = {str(key): names for key, names in found.result.reservations.items()}
    assert reservations == literal.cycle.reservations
    assert sorted(map(str, found.timed_out_tasks)) == sorted(literal.timed_out)
    assert sorted(map(str, found.dependency_failed)) == sorted(literal.failed)
    assert kinds_of(found.waiting) == literal.waiting


@MANY
@given(states)
def test_the_rules_read_literally_plan_the_same(state: State) -> None:
    assert_that_the_rules_read_literally_plan_the_same(state)


@pytest.mark.soak
@VERY_MANY
@given(states)
def test_the_rules_read_literally_plan_the_same_very_often(state: State) -> None:
    assert_that_the_rules_read_literally_plan_the_same(state)
