"""All slices of a gang, idle ones included, are of one device type and in one region."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from iris_cli.core.autoscaling import DemandEntry, GroupState, RoutingDecision, UnmetKind, route_demand
from iris_cli.core.autoscaling.demand import compute_demand_entries
from iris_cli.core.autoscaling.groups import booting_workers
from iris_cli.core.model.job import Job
from iris_cli.core.model.worker import Worker
from tests.support.fleet import cycle, gang, pending, tpu_slice
from tests.support.random_fleet import Dice, dice
from tests.support.scale import state

V5E = "v5litepod-16"
WEST, EAST = "us-west4", "us-east1"


def idle(name: str, region: str, tpu: str = V5E, zone: str = "a") -> list[Worker]:
    return tpu_slice(name, tpu, region=region, zone=f"{region}-{zone}")


def group(name: str, region: str, tpu: str = V5E, zone: str = "a", **fields: int) -> GroupState:
    return state(name, tpu, f"{region}-{zone}", **fields)


def train(slices: int = 2, *, tpu: str = V5E, spread: bool = False) -> Job:
    return gang("train", tpu=tpu, replicas=4 * slices, slices=slices, spread=spread)


def demand(workers: Sequence[Worker], job: Job, groups: Sequence[GroupState]) -> list[DemandEntry]:
    return compute_demand_entries(pending([job]), workers, {job.id: job}.get, 0.0, groups=groups)


def decided(workers: Sequence[Worker], job: Job, *groups: GroupState) -> RoutingDecision:
    return route_demand(demand(workers, job, groups), groups)


def launched(workers: Sequence[Worker], job: Job, *groups: GroupState) -> dict[str, int]:
    return dict(decided(workers, job, *groups).launch)


def reason(workers: Sequence[Worker], job: Job, *groups: GroupState) -> str:
    [unmet] = decided(workers, job, *groups).unmet
    return str(unmet.reason)


def test_idle_slices_of_two_regions_do_not_add_up() -> None:
    there = [*idle("x", WEST), *idle("y", EAST)]
    [entry] = demand(there, train(3), ())
    assert (entry.slices, entry.spread, [site.groups for site in entry.idle]) == (2, False, [1, 1])
    [entry] = demand(there, train(3, spread=True), ())
    assert (entry.slices, entry.spread, [site.groups for site in entry.idle]) == (1, True, [2])


def test_idle_slices_of_two_device_types_do_not_add_up() -> None:
    there = [*idle("x", WEST), *idle("y", WEST, "v4-32")]
    [entry] = demand(there, train(3, tpu="auto"), ())
    assert entry.slices == 2
    groups = group("a", WEST, "v4-32", max_slices=1), group("b", WEST, max_slices=2)
    assert launched(there, train(3, tpu="auto"), *groups) == {"b": 2}


def test_where_the_idle_slice_cannot_be_completed_all_are_made_elsewhere() -> None:
    groups = group("west", WEST, max_slices=0), group("east", EAST)
    assert launched(idle("x", WEST), train(), *groups) == {"east": 2}


def test_of_two_regions_with_idle_slices_the_one_that_can_be_completed_is() -> None:
    there = [*idle("x", WEST), *idle("y", WEST), *idle("z", EAST)]
    groups = group("west", WEST, max_slices=0), group("east", EAST, max_slices=2)
    assert launched(there, train(3), *groups) == {"east": 2}


def test_a_gang_that_no_region_can_hold_is_unmet_and_says_so() -> None:
    groups = group("west", WEST, max_slices=1), group("east", EAST, max_slices=1)
    [unmet] = decided([], train(), *groups).unmet
    assert unmet.entry.spread is False
    assert (unmet.reason.kind, str(unmet.reason)) == (
        UnmetKind.REGION,
        "no region has room for 2 slices of v5litepod-16 (us-east1: 1, us-west4: 1);"
        " pass --spread to use several regions",
    )
    assert launched([], train(spread=True), *groups) == {"east": 1, "west": 1}


def test_idle_slices_count_towards_what_a_region_can_hold() -> None:
    groups = group("west", WEST, max_slices=0), group("east", EAST, max_slices=1)
    assert reason(idle("x", WEST), train(), *groups) == (
        "no region has room for 2 slices of v5litepod-16 (us-west4: 1, us-east1: 1);"
        " pass --spread to use several regions"
    )
    assert launched(idle("x", WEST), train(spread=True), *groups) == {"east": 1}


def test_what_spread_would_not_help_has_the_reason_of_each_group() -> None:
    groups = group("west", WEST, max_slices=1), group("east", EAST, max_slices=1)
    assert reason([], train(3), *groups) == (
        "needs 3 slices, but scale group east allows 1 (max_slices), scale group west allows 1 (max_slices)"
    )


def test_groups_of_one_region_hold_a_gang_together_if_none_holds_it_alone() -> None:
    a, b = group("a", WEST, max_slices=1), group("b", WEST, zone="b", max_slices=1)
    assert launched([], train(), a, b) == {"a": 1, "b": 1}
    assert launched([], train(), a, b, group("c", EAST)) == {"c": 2}
    assert launched([], train(3), a, b) == {}


def test_one_zone_goes_before_one_region() -> None:
    a, b = group("a", WEST, max_slices=1), group("b", WEST, zone="b", max_slices=1)
    c = group("c", WEST, zone="b", max_slices=1)
    assert launched([], train(), a, b, c) == {"b": 1, "c": 1}
    assert launched(idle("x", WEST, zone="b"), train(), a, b) == {"b": 1}


def test_an_entry_is_routed_to_every_group_that_makes_slices_for_it() -> None:
    a, b = group("a", WEST, max_slices=1), group("b", WEST, zone="b", max_slices=1)
    decision = decided([], train(), a, b)
    assert {name: [entry.key for entry in some] for name, some in decision.routed.items()} == {
        "a": ["train"],
        "b": ["train"],
    }


def test_room_on_slices_that_were_just_asked_for_is_used_in_one_region() -> None:
    west, east = group("west", WEST, max_slices=1), group("east", EAST, max_slices=2)
    load = replace(gang("load", "region=us-west4", tpu=None, replicas=4), order=-1)
    hosts = replace(gang("hosts", tpu=None, replicas=8, slices=2), order=1)
    entries = compute_demand_entries(
        pending([load, hosts]), [], {"load": load, "hosts": hosts}.get, 0.0, groups=[west, east]
    )
    assert dict(route_demand(entries, [west, east]).launch) == {"west": 1, "east": 2}


# Whatever there is


def _idle_slices(dice: Dice) -> list[Worker]:
    found = []
    for number in range(dice.up_to(4)):
        region, tpu = dice.pick([WEST, EAST]), dice.pick([V5E, V5E, "v4-32"])
        found += idle(f"s{number}", region, tpu, dice.pick(["a", "b"]))
    return found


def _groups(dice: Dice) -> list[GroupState]:
    return [
        group(
            f"g{number}",
            dice.pick([WEST, EAST, "europe-west4"]),
            dice.pick([V5E, V5E, "v4-32"]),
            dice.pick(["a", "b"]),
            max_slices=dice.up_to(3),
            priority=dice.up_to(1),
        )
        for number in range(dice.up_to(4))
    ]


@settings(max_examples=50, deadline=None)
@given(dice)
def test_what_is_routed_is_placed_when_its_slices_are_there_and_no_place_holds_the_rest(dice: Dice) -> None:
    check(dice)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(dice)
def test_what_is_routed_is_placed_when_its_slices_are_there_long(dice: Dice) -> None:
    check(dice)


def check(dice: Dice) -> None:
    workers, groups = _idle_slices(dice), _groups(dice)
    job = train(2 + dice.up_to(1), tpu=dice.pick([V5E, "auto"]), spread=dice.rarely(3))
    decision = decided(workers, job, *groups)
    made = [replace(each, booting=decision.launch.get(each.name, 0)) for each in groups]
    there = [*workers, *booting_workers(made)]
    assert bool(cycle(there, job).assignments) == (not decision.unmet)
    if decision.unmet:
        full = [replace(each, booting=each.room) for each in groups]
        assert not cycle([*workers, *booting_workers(full)], job).assignments
    if decision.launch and not job.spread:
        assert len({each.group.template.zone[:-2] for each in groups if decision.launch.get(each.name)}) == 1
