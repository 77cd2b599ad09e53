"""A gang of several slices: one device type, one region, and one zone if possible."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.worker import Worker
from tests.support.fleet import change, cycle, explain, gang, host, kinds, text_of, tpu_slice, training

WEST: dict[str, Any] = {"region": "us-west4", "zone": "us-west4-a"}
WEST_B: dict[str, Any] = {"region": "us-west4", "zone": "us-west4-b"}
EAST: dict[str, Any] = {"region": "us-east1", "zone": "us-east1-c"}


def two(*constraints: str, **fields: Any) -> Job:
    """A gang on two slices of four VMs each."""
    return gang("two", *constraints, replicas=8, slices=2, **fields)


def slices_of(fleet: list[Worker], asked: Job, **options: Any) -> list[str]:
    """The slices that a job is placed on, in the order of its ranks."""
    assignments = cycle(fleet, asked, **options).assignments
    return list(dict.fromkeys(each.worker.rpartition("-")[0] for each in assignments))


def test_with_spread_one_region_still_goes_before_two() -> None:
    fleet = [*tpu_slice("a", **WEST), *tpu_slice("b", **EAST), *tpu_slice("c", **EAST)]
    assert slices_of(fleet, two(spread=True)) == ["b", "c"]


def test_the_first_region_by_group_key_with_enough_free_slices_serves() -> None:
    fleet = [
        *tpu_slice("a", **WEST),
        *tpu_slice("b", **EAST),
        *tpu_slice("c", **EAST),
        *tpu_slice("d", **WEST),
    ]
    assert slices_of(fleet, two()) == ["a", "d"]
    assert slices_of(change(fleet, 0, draining=True), two()) == ["b", "c"]


def test_preferences_choose_the_region() -> None:
    fleet = [
        worker
        for name, where in zip("abcd", (WEST, WEST, EAST, EAST), strict=True)
        for worker in tpu_slice(name, **where)
    ]
    assert slices_of(fleet, two("~region=us-east1")) == ["c", "d"]


def test_one_zone_goes_before_two_of_the_same_region() -> None:
    fleet = [*tpu_slice("a", **WEST), *tpu_slice("b", **WEST_B), *tpu_slice("c", **WEST_B)]
    assert slices_of(fleet, two()) == ["b", "c"]
    assert slices_of(fleet[:8], two()) == ["a", "b"]


def test_one_zone_goes_before_preferences() -> None:
    fleet = [
        *tpu_slice("a", pool="fast", **WEST),
        *tpu_slice("b", pool="fast", **WEST_B),
        *tpu_slice("c", **WEST_B),
    ]
    assert slices_of(fleet, two("~pool=fast")) == ["b", "c"]


def test_the_set_that_meets_more_preferences_in_total_goes_first() -> None:
    fleet = [
        *tpu_slice("a", pool=1, rack=1, **WEST),
        *tpu_slice("b", **WEST),
        *tpu_slice("c", pool=1, **EAST),
        *tpu_slice("d", pool=1, rack=1, **EAST),
    ]
    assert slices_of(fleet, two("~pool=1", "~rack=1")) == ["c", "d"]


def test_blocks_of_ranks_go_in_the_order_of_the_group_keys() -> None:
    fleet = [*tpu_slice("a"), *tpu_slice("b", pool="x")]
    assert slices_of(fleet, two("~pool=x")) == ["a", "b"]


def test_slices_without_a_region_count_as_one_region_of_their_own() -> None:
    fleet = [*tpu_slice("a"), *tpu_slice("b", **WEST), *tpu_slice("c")]
    assert slices_of(fleet, two()) == ["a", "c"]
    assert kinds(cycle(fleet[:8], two()), "two") == ["region"]


def test_a_slice_whose_vms_are_in_two_regions_serves_no_gang_of_several() -> None:
    odd = [*tpu_slice("a", **WEST)[:2], *tpu_slice("a", **EAST)[2:]]
    fleet = [*odd, *tpu_slice("b", **WEST)]
    assert kinds(cycle(fleet, two()), "two") == ["region"]
    assert slices_of(fleet, gang("one")) == ["a"]
    assert slices_of(fleet, two(spread=True)) == ["a", "b"]


@pytest.mark.parametrize("spread", [False, True])
def test_auto_never_mixes_device_types(spread: bool) -> None:
    fleet = [*tpu_slice("a", "v4-32"), *tpu_slice("b", "v5litepod-16")]
    asked = two(tpu="auto", spread=spread)
    result = cycle(fleet, asked)
    assert result.assignments == ()
    assert text_of(result, "two") == (
        "group_shape: needs 2 slices of one device type (suitable: 1 of v4-32, 1 of v5litepod-16)"
    )
    assert slices_of([*fleet, *tpu_slice("c", "v5litepod-16")], asked) == ["b", "c"]


def test_a_gang_of_hosts_may_have_groups_of_different_devices_that_it_does_not_use() -> None:
    fleet = [host("a", rack="r", gpus=2), host("b", rack="s")]
    asked = gang("two", tpu=None, by="rack", replicas=2, slices=2)
    assert [each.worker for each in cycle(fleet, asked).assignments] == ["a", "b"]


def test_a_gang_of_hosts_on_several_groups_stays_in_one_region_too() -> None:
    fleet = [host("a", rack="r", **WEST), host("b", rack="s", **EAST), host("c", rack="t", **EAST)]
    asked = gang("two", tpu=None, by="rack", replicas=2, slices=2)
    assert [each.worker for each in cycle(fleet, asked).assignments] == ["b", "c"]


# Why it waits


def busy_slice(name: str, **where: Any) -> list[Worker]:
    return [training(worker) for worker in tpu_slice(name, **where)]


REASONS: list[tuple[list[Worker], Job, list[str]]] = [
    (
        [*tpu_slice("a", **WEST), *busy_slice("b", **EAST)],
        two(),
        [
            "region: no region has 2 suitable v4-32 slices (2 in 2 regions); pass --spread to use several regions"
        ],
    ),
    (
        [*tpu_slice("a", **WEST), *tpu_slice("b", **EAST), *tpu_slice("c")],
        two(),
        ["region: no region has 2 free v4-32 slices (3 in 3 regions); pass --spread to use several regions"],
    ),
    (
        [*tpu_slice("a", **WEST), *busy_slice("b", **WEST), *busy_slice("c", **EAST)],
        two(),
        ["chips: needs 2 slices, but 2 of 3 v4-32 slices are busy (old)"],
    ),
    (
        [*tpu_slice("a", **WEST), *busy_slice("b", **WEST), *tpu_slice("c", **EAST)],
        two(),
        [
            "chips: needs 2 slices, but 1 of 3 v4-32 slices is busy (old)",
            "region: no region has 2 free v4-32 slices (2 in 2 regions); pass --spread to use several regions",
        ],
    ),
    (
        [*tpu_slice("a", **WEST), *busy_slice("b", **WEST), *tpu_slice("c", **EAST)],
        two(spread=True, tpu="v4-32", priority=Priority.HIGH),
        [],
    ),
    (
        [*tpu_slice("a", **WEST), *tpu_slice("b", **EAST)],
        two("region in us-west4,us-east1"),
        ["region: no region has 2 free v4-32 slices (2 in 2 regions); pass --spread to use several regions"],
    ),
    (
        [host("a", rack="r", **WEST), host("b", rack="s", **EAST)],
        gang("two", tpu=None, by="rack", replicas=2, slices=2),
        ["region: no region has 2 free rack groups (2 in 2 regions); pass --spread to use several regions"],
    ),
    (
        [*tpu_slice("a", **WEST), *tpu_slice("b", **EAST), *tpu_slice("c", "v5litepod-16", **WEST)],
        two(tpu="auto"),
        ["region: no region has 2 free v4-32 slices (2 in 2 regions); pass --spread to use several regions"],
    ),
]


@pytest.mark.parametrize(("fleet", "asked", "texts"), REASONS, ids=range(len(REASONS)))
def test_the_reason_names_what_is_lacking(fleet: list[Worker], asked: Job, texts: list[str]) -> None:
    waiting = cycle(fleet, asked).waiting
    assert [str(reason) for reason in waiting.get(asked.id, ())] == texts


def test_need_and_have_count_the_slices_of_the_best_region() -> None:
    fleet = [*tpu_slice("a", **WEST), *tpu_slice("b", **EAST), *tpu_slice("c", **EAST)]
    asked = gang("three", replicas=12, slices=3)
    [reason] = cycle(fleet, asked).waiting[asked.id]
    assert (reason.kind, reason.need, reason.have, reason.refused) == ("region", 3, 2, 1)


def test_spread_is_not_proposed_where_it_does_not_help() -> None:
    fleet = [*tpu_slice("a", **WEST), *busy_slice("b", **EAST)]
    assert explain(fleet, two()).change is None
    fleet = [*tpu_slice("a", **WEST), *busy_slice("b", **WEST), *busy_slice("c", **EAST)]
    change = explain(fleet, two()).change
    assert change is not None
    assert change.text == "slice b has room when job old ends"


# Reservations


def test_the_slices_kept_free_for_a_gang_are_of_one_region() -> None:
    fleet = [*busy_slice("a", **WEST), *tpu_slice("b", **EAST), *busy_slice("c", **WEST)]
    assert cycle(fleet, two(), now=600.0).reservations == {"two": ("a", "c")}
    assert cycle(fleet, two(spread=True), now=600.0).reservations == {"two": ("a", "b")}
    assert cycle(fleet[:8], two(), now=600.0).reservations == {}
    assert cycle(fleet[:8], two(spread=True), now=600.0).reservations == {"two": ("a", "b")}


def test_the_slices_kept_free_for_a_gang_are_of_one_device_type() -> None:
    fleet = [*busy_slice("a"), *tpu_slice("b", "v5litepod-16"), *busy_slice("c")]
    assert cycle(fleet, two(tpu="auto"), now=600.0).reservations == {"two": ("a", "c")}


def test_fewer_attempts_to_wait_for_go_before_one_zone_and_one_zone_before_the_group_key() -> None:
    fleet = [*busy_slice("a", **WEST_B), *busy_slice("b", **WEST), *busy_slice("c", **WEST)]
    assert cycle(fleet, two(), now=600.0).reservations == {"two": ("b", "c")}
    fleet = [*tpu_slice("a", **WEST_B), *busy_slice("b", **WEST), *busy_slice("c", **WEST)]
    assert cycle(fleet, two(), now=600.0).reservations == {"two": ("a", "b")}
