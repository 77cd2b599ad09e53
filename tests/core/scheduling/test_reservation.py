"""A gang that waits too long for busy workers gets them kept free."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import Priority
from iris_cli.core.resources import Device
from tests.support.fleet import (
    busy,
    change,
    cycle,
    gang,
    host,
    job,
    kinds,
    tpu_slice,
    training,
    workers_of,
)

LONG = 600.0
ONE_CHIP_TASK = job("single", device=Device("tpu", "v4-32"), order=9, submitted_at=LONG)


def half_busy(name: str, count: int = 2) -> list[Any]:
    """A slice of which `count` workers train for somebody."""
    return [
        training(worker, f"old-{name}") if at < count else worker for at, worker in enumerate(tpu_slice(name))
    ]


@pytest.mark.parametrize(
    ("now", "options"),
    [(LONG - 0.001, {}), (1e9, {"gang_reserve_after": 0.0})],
    ids=["too early", "switched off"],
)
def test_nothing_is_reserved_too_early_or_where_it_is_switched_off(
    now: float, options: dict[str, Any]
) -> None:
    result = cycle(half_busy("a"), gang("train"), ONE_CHIP_TASK, now=now, **options)
    assert workers_of(result, "single") == ["a-2"]
    assert result.reservations == {}


def test_the_group_with_the_fewest_attempts_to_wait_for_is_kept_then_the_first_by_key() -> None:
    fleet = [*half_busy("a", 3), *half_busy("c", 1), *half_busy("b", 1)]
    assert cycle(fleet, gang("train"), now=LONG).reservations == {"train": ("b",)}


def test_attempts_that_are_not_in_the_way_do_not_count() -> None:
    crowded = [busy(busy(worker, "cpu"), "cpu") for worker in half_busy("b", 1)[1:]]
    fleet = [*half_busy("a", 2), half_busy("b", 1)[0], *crowded]
    assert cycle(fleet, gang("train"), now=LONG).reservations == {"train": ("b",)}


def test_what_was_placed_in_this_cycle_counts_as_well() -> None:
    fleet = [*half_busy("a", 1), *half_busy("b", 2)]
    earlier = job("early", "tpu-name=a", device=Device("tpu"), replicas=3, priority=Priority.HIGH)
    assert cycle(fleet, earlier, gang("train"), now=LONG).reservations == {"train": ("b",)}


@pytest.mark.parametrize(
    "fields",
    [{"draining": True}, {"cooldown_until": LONG + 5}, {"cpu": 0.5}],
    ids=["draining", "cooling", "small"],
)
def test_only_a_group_that_lacks_nothing_but_busy_capacity_is_kept(fields: dict[str, Any]) -> None:
    result = cycle(change(half_busy("a"), 3, **fields), gang("train"), ONE_CHIP_TASK, now=LONG)
    assert result.reservations == {}
    assert workers_of(result, "single") == ["a-2"]


def test_who_found_room_before_the_gang_finds_none_after_it() -> None:
    early = job("early", cpu=9, submitted_at=LONG)
    late = job("late", cpu=105, order=9, submitted_at=LONG)
    result = cycle(
        [training(worker) for worker in tpu_slice("a")], early, gang("train", cpu=9, order=5), late, now=LONG
    )
    assert workers_of(result, "early") == ["a-0"]
    assert kinds(result, "late", 0) == ["reserved"]


def test_a_later_gang_takes_only_what_is_not_kept() -> None:
    free, *others = (host(f"w{number}", rack="r") for number in range(4))
    fleet = [free, *(busy(worker, cpu=8) for worker in others)]
    fleet[3] = busy(fleet[3], cpu=0)
    first = gang("first", tpu=None, by="rack", replicas=3, cpu=16)
    second = gang("second", tpu=None, by="rack", replicas=1, cpu=4, order=1)
    assert workers_of(cycle(fleet, first, second, now=LONG), "second") == ["w3"]


def test_who_keeps_a_group_waits_for_what_is_busy_there_and_not_for_itself() -> None:
    fleet = [*half_busy("a"), *tpu_slice("b")]
    waiting = cycle(fleet, gang("two", replicas=8, slices=2), now=LONG).waiting
    explanation = waiting.explain(JobId("two"))
    assert [reason.kind for reason in explanation.reasons] == ["chips"]
    assert str(explanation.change) == "slice a has room when job old-a ends"


def test_who_keeps_one_group_is_told_of_those_that_others_keep() -> None:
    """Both racks would do for `second`: one is kept for `first`, whose workers there are free; one is busy."""
    rack = [busy(host("a1", rack="a"), cpu=16), host("a2", rack="a")]
    other = [busy(host("b1", rack="b"), cpu=16), busy(host("b2", rack="b"), cpu=16)]
    first = gang("first", tpu=None, by="rack", replicas=2, cpu=16)
    second = gang("second", tpu=None, by="rack", replicas=1, cpu=16, order=1)
    result = cycle([*rack, *other], first, second, now=LONG)
    assert result.reservations == {"first": ("a",), "second": ("b",)}
    assert kinds(result, "second") == ["cpu", "reserved"]


def test_a_gang_that_comes_behind_is_told_so_though_it_keeps_the_rest() -> None:
    early = job("early", device=Device("tpu"), priority=Priority.HIGH)
    result = cycle(tpu_slice("a"), early, gang("train"), now=LONG)
    assert result.reservations == {"train": ("a",)}
    assert kinds(result, "train") == ["behind"]


def test_two_gangs_keep_two_groups_and_a_third_finds_none() -> None:
    fleet = [*half_busy("a"), *half_busy("b")]
    gangs = [gang(f"g{number}", order=number) for number in range(3)]
    assert cycle(fleet, *gangs, now=LONG).reservations == {"g0": ("a",), "g1": ("b",)}


def test_a_gang_of_two_slices_keeps_the_free_one_too() -> None:
    fleet = [*half_busy("a"), *tpu_slice("b"), *half_busy("c", 1)]
    two = gang("two", replicas=8, slices=2)
    result = cycle(fleet, two, gang("one", order=1, submitted_at=LONG), ONE_CHIP_TASK, now=LONG)
    assert result.reservations == {"two": ("b", "c")}
    assert workers_of(result, "one") == []
    assert workers_of(result, "single") == ["a-2"]


def test_of_a_large_group_only_as_many_workers_are_kept_as_the_gang_needs() -> None:
    rack = [host(f"w{number}", rack="r") for number in range(6)]
    fleet = [busy(worker, cpu=16) if number < 3 else worker for number, worker in enumerate(rack)]
    fleet[0] = busy(fleet[0], cpu=0)
    waits = gang("g", tpu=None, by="rack", replicas=5, cpu=16)
    result = cycle(fleet, waits, job("late", cpu=1, replicas=40, order=9, submitted_at=LONG), now=LONG)
    assert result.reservations == {"g": ("r",)}
    assert set(workers_of(result, "late")) == set()
    assert kinds(result, "late", 0) == ["cpu", "reserved"]


def test_workers_beside_the_kept_ones_stay_open() -> None:
    rack = [busy(host(f"w{number}", rack="r"), cpu=12) for number in range(6)]
    rack[0] = busy(rack[0], cpu=1)
    waits = gang("g", tpu=None, by="rack", replicas=5, cpu=16)
    result = cycle(rack, waits, job("late", replicas=40, order=9, submitted_at=LONG), now=LONG)
    assert sorted(set(workers_of(result, "late"))) == ["w0"]
