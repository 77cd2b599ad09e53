"""Whatever groups and jobs there are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from iris_cli.core.autoscaling import GroupState, RoutingDecision, compute_demand_entries, route_demand
from iris_cli.core.model.job import Job
from tests.support.fleet import pending
from tests.support.literal_router import LiteralRouter
from tests.support.random_demand import some_groups, some_jobs
from tests.support.random_fleet import NOW, Dice, dice
from tests.support.scale import entries_of


@settings(max_examples=50, deadline=None)
@given(dice)
def test_routing_is_what_the_rules_say_word_for_word(dice: Dice) -> None:
    _compare(dice)


@pytest.mark.soak
@settings(max_examples=6_000, deadline=None)
@given(dice)
def test_routing_is_what_the_rules_say_word_for_word_long(dice: Dice) -> None:
    _compare(dice)


def _compare(dice: Dice) -> None:
    groups, entries = some_groups(dice), entries_of(*some_jobs(dice))
    expected = LiteralRouter(groups).run(entries)
    decision = route_demand(entries, groups)
    homes: dict[str, list[str]] = {str(each.entry.key): [] for each in decision.unmet}
    for name, some in decision.routed.items():
        for entry in some:
            homes.setdefault(str(entry.key), []).append(name)
    assert {key: sorted(names) for key, names in homes.items()} == expected.home
    assert dict(decision.launch) == expected.launch
    for state in groups:
        if decision.launch.get(state.name):
            assert state.slices + decision.launch[state.name] <= state.group.max_slices
            assert not state.backing_off


@settings(max_examples=50, deadline=None)
@given(dice)
def test_what_was_asked_for_is_no_demand_while_it_boots(dice: Dice) -> None:
    _asked_again(dice)


@pytest.mark.soak
@settings(max_examples=6_000, deadline=None)
@given(dice)
def test_what_was_asked_for_is_no_demand_while_it_boots_long(dice: Dice) -> None:
    _asked_again(dice)


def _asked_again(dice: Dice) -> None:
    """Once its slices are asked for, one group is asked for nothing more: no job makes two of them."""
    groups, jobs = some_groups(dice)[:1], some_jobs(dice)
    decision = _decided(groups, jobs)
    rest = _decided(_with(groups, decision), jobs)
    assert {each.entry.key for each in rest.unmet} == {each.entry.key for each in decision.unmet}
    assert (rest.launch, rest.routed) == ({}, {})


@settings(max_examples=40, deadline=None)
@given(dice)
def test_several_groups_come_to_rest(dice: Dice) -> None:
    """The scheduler may give to one task the slice that another one was to have: that one is asked for again. But
    not for ever, and no entry is dropped that could be served.
    """
    groups, jobs = some_groups(dice), some_jobs(dice)
    for _ in range(12):
        decision = _decided(groups, jobs)
        if not decision.launch:
            break
        groups = _with(groups, decision)
    assert not decision.launch
    assert all(each.slices <= each.group.max_slices for each in groups)


def _decided(groups: list[GroupState], jobs: list[Job]) -> RoutingDecision:
    known = {each.id: each for each in jobs}
    entries = compute_demand_entries(pending(jobs), [], known.get, NOW, groups=groups)
    return route_demand(entries, groups)


def _with(groups: list[GroupState], decision: RoutingDecision) -> list[GroupState]:
    """The groups while they make what was decided."""
    made = decision.launch
    return [
        replace(
            each, slices=each.slices + made.get(each.name, 0), booting=each.booting + made.get(each.name, 0)
        )
        for each in groups
    ]
