"""Gangs: whole or not at all, each on exactly its groups."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.model.worker import Worker
from iris_cli.core.resources import Device
from tests.support.fleet import (
    busy,
    change,
    cycle,
    gang,
    host,
    job,
    kinds,
    pending,
    tainted,
    tpu_slice,
    training,
    values,
    workers_of,
)

WHOLE = ["a-0", "a-1", "a-2", "a-3"]


def rack(name: Any, *names: str, **fields: Any) -> list[Worker]:
    """Hosts with the same value of the attribute `rack`."""
    return [host(each, rack=name, **fields) for each in names]


def test_worker_ids_count_as_numbers_not_as_text() -> None:
    result = cycle(tpu_slice("a", "v4-128", vms=16), gang("train", replicas=16, tpu="v4-128"))
    assert workers_of(result, "train") == [f"a-{number}" for number in range(16)]


def test_a_single_tpu_task_takes_its_vm_from_every_gang() -> None:
    single = job("single", device=Device("tpu", "v4-32"), order=0)
    result = cycle(tpu_slice("a"), single, gang("train", order=1))
    assert workers_of(result, "single") == ["a-0"]
    assert kinds(result, "train") == ["behind"]


def unhealthy(worker: Worker) -> Worker:
    return replace(worker, draining=True)


def numbered(number: Any) -> Any:
    return lambda worker: replace(
        worker, attributes={**worker.attributes, **values({"tpu-worker-id": number})}
    )


def blank(worker: Worker) -> Worker:
    return replace(worker, attributes={k: v for k, v in worker.attributes.items() if k != "tpu-worker-id"})


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (training, "chips"),
        (unhealthy, "unhealthy"),
        (tainted, "taint"),
        (blank, "group_shape"),
        (numbered(1), "group_shape"),
        (numbered(4), "group_shape"),
        (numbered("0"), "group_shape"),
        (numbered(0.0), "group_shape"),
        (lambda worker: replace(worker, cpu=0.5), "cpu"),
        (lambda worker: busy(worker, memory=400 << 30), "memory"),
    ],
    ids=[
        "chips",
        "unhealthy",
        "tainted",
        "blank id",
        "twice",
        "gap",
        "text id",
        "decimal id",
        "cpu",
        "memory",
    ],
)
def test_one_member_that_is_not_right_excludes_the_slice(spoil: Any, kind: str) -> None:
    first, *others = tpu_slice("a")
    result = cycle([spoil(first), *others, *tpu_slice("other", "v4-16", vms=2)], gang("train"))
    assert (result.assignments, kinds(result, "train")) == ((), [kind])


@pytest.mark.parametrize("missing", range(4))
def test_a_slice_of_which_a_worker_is_not_registered_is_not_whole(missing: int) -> None:
    fleet = [worker for number, worker in enumerate(tpu_slice("a")) if number != missing]
    assert cycle(fleet, gang("train")).assignments == ()


def test_the_workers_left_of_a_larger_slice_are_no_smaller_slice() -> None:
    fleet = tpu_slice("a", tpu_vm_count=4)[:2]
    assert cycle(fleet, gang("train", replicas=2, tpu="auto")).assignments == ()


def test_a_stranger_in_the_slice_makes_it_too_large() -> None:
    stranger = host("stranger", tpu_name="a")
    assert cycle([*tpu_slice("a"), stranger], gang("train")).assignments == ()


def test_a_constraint_on_members_never_cuts_a_slice() -> None:
    result = cycle(tpu_slice("a"), gang("train", "tpu-worker-id>=1", replicas=3))
    assert (result.assignments, kinds(result, "train")) == ((), ["constraint"])


def test_auto_takes_a_slice_whose_size_is_the_gangs() -> None:
    fleet = [
        *tpu_slice("a", "v4-64", vms=8),
        *tpu_slice("b", "v5litepod-16"),
        *tpu_slice("c", "v4-16", vms=2),
    ]
    result = cycle(fleet, gang("four", tpu="auto"), gang("two", tpu="auto", replicas=4, slices=2))
    assert workers_of(result, "four") == ["b-0", "b-1", "b-2", "b-3"]
    assert kinds(result, "two") == ["group_shape"]


def test_more_preferences_met_then_the_group_key() -> None:
    fleet = [
        *tpu_slice("a"),
        *tpu_slice("b", region="eu"),
        *tpu_slice("c", region="eu", pool="x"),
        *tpu_slice("d", pool="x"),
    ]
    jobs = [gang(f"g{number}", "~region=eu", "~pool=x", order=number) for number in range(4)]
    result = cycle(fleet, *jobs)
    assert [workers_of(result, each.id)[0] for each in jobs] == ["c-0", "b-0", "d-0", "a-0"]


# Gangs on other hosts


def test_only_workers_that_fit_count_for_the_size_of_a_group() -> None:
    fleet = [busy(host("a1", rack="a"), cpu=16), *rack("a", "a2", "a3"), *rack("b", "b1", "b2", "b3")]
    assert workers_of(cycle(fleet, gang("g", tpu=None, by="rack", replicas=2)), "g") == ["a2", "a3"]


@pytest.mark.parametrize(
    ("preferred", "members"),
    [
        ((), ["1", "2"]),
        (("~disk=ssd",), ["3", "4"]),
        (("~pool=x",), ["1", "5"]),
        (("~disk=ssd", "~pool=x"), ["3", "5"]),
        (("~disk=tape",), ["1", "2"]),
    ],
)
def test_within_its_group_a_gang_gets_the_preferred_workers_in_the_order_of_their_ids(
    preferred: tuple[str, ...], members: list[str]
) -> None:
    fleet = [
        *rack("a", "1", "2"),
        *(host(name, rack="a", disk="ssd") for name in "34"),
        host("5", rack="a", disk="ssd", pool="x"),
    ]
    assert workers_of(cycle(fleet, gang("g", *preferred, tpu=None, by="rack", replicas=2)), "g") == members


def test_a_group_is_worth_what_its_preferred_members_meet() -> None:
    fleet = [*rack("a", *"123"), *rack("b", *"456"), host("7", rack="b", pool="x")]
    asked = gang("g", "~pool=x", tpu=None, by="rack", replicas=2)
    assert workers_of(cycle(fleet, asked), "g") == ["4", "7"]


def test_the_smallest_group_is_searched_again_after_each_placement() -> None:
    fleet = [*rack("a", *"12345"), *rack("b", *"6789")]
    jobs = [gang(f"g{n}", tpu=None, by="rack", replicas=2, cpu=16, order=n) for n in range(4)]
    singles = job("single", "rack=a", cpu=16, replicas=2, order=0)
    result = cycle(fleet, singles, *(replace(each, order=each.order + 1) for each in jobs))
    assert [workers_of(result, each.id) for each in jobs] == [["3", "4"], ["6", "7"], ["8", "9"], []]


def test_ranks_go_by_worker_number_then_by_worker_id() -> None:
    fleet = [
        host("z", rack="r", tpu_worker_id=0),
        host("c", rack="r"),
        host("b", rack="r", tpu_worker_id="0"),
        host("y", rack="r", tpu_worker_id=10),
        host("x", rack="r", tpu_worker_id=9),
    ]
    assert workers_of(cycle(fleet, gang("g", tpu=None, by="rack", replicas=5)), "g") == [
        "z",
        "x",
        "y",
        "b",
        "c",
    ]


def test_a_gang_of_hosts_has_one_task_on_each_worker() -> None:
    result = cycle(rack("r", "a", "b", "c", cpu=64), gang("g", tpu=None, by="rack", replicas=3))
    assert workers_of(result, "g") == ["a", "b", "c"]


def test_a_gang_with_gpus_gets_free_ones_on_every_host() -> None:
    fleet = [busy(host("a", gpus=4, rack="r"), gpus=(0, 2)), host("b", gpus=2, rack="r")]
    g = gang("g", tpu=None, by="rack", replicas=2, device=Device("gpu", count=2))
    assert [(each.worker, each.gpus) for each in cycle(fleet, g).assignments] == [
        ("a", (1, 3)),
        ("b", (0, 1)),
    ]


def test_groups_of_keys_of_different_types_are_never_merged() -> None:
    fleet = [*rack(1, "a"), *rack("1", "b"), *rack(1.0, "c")]
    result = cycle(fleet, gang("g", tpu=None, by="rack", replicas=2))
    assert (result.assignments, kinds(result, "g")) == ((), ["group_shape"])


def test_groups_of_keys_of_different_types_have_an_order() -> None:
    fleet = [*rack("a", "1"), *rack(2, "2"), *rack(10, "3"), *rack(0.5, "4")]
    jobs = [gang(f"g{n}", tpu=None, by="rack", replicas=1, cpu=16, order=n) for n in range(4)]
    result = cycle(fleet, *jobs)
    assert [each.worker for each in result.assignments] == ["4", "2", "3", "1"]


def test_an_attribute_that_no_worker_has_keeps_only_its_own_gang_waiting() -> None:
    result = cycle(tpu_slice("a"), gang("odd", by="nonsense", order=0), gang("train", order=1))
    assert kinds(result, "odd") == ["group_shape"]
    assert workers_of(result, "train") == WHOLE


# Never a part of a gang


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_gang_of_which_some_tasks_are_missing_is_never_placed(rounds: int) -> None:
    train = gang("train", rounds=rounds)
    for index in range(4):
        rest = [task for task in pending([train]) if task.index != index]
        result = cycle([*tpu_slice("a"), *tpu_slice("b", vms=3)], train, tasks=rest)
        assert (result.assignments, kinds(result, "train")) == ((), ["stopping" if rounds else "invalid"])


@pytest.mark.parametrize("slices", [0, 3, 8])
def test_a_gang_that_can_not_be_divided_evenly_is_invalid_and_blocks_no_other_job(slices: int) -> None:
    result = cycle(tpu_slice("a"), gang("odd", slices=slices, order=0), gang("train", order=1))
    assert kinds(result, "odd") == ["invalid"]
    assert workers_of(result, "train") == WHOLE


def test_cpu_work_on_a_slice_keeps_no_gang_from_its_chips() -> None:
    fleet = [busy(worker) for worker in tpu_slice("a")]
    assert workers_of(cycle(fleet, gang("train")), "train") == WHOLE


def test_a_broken_host_in_another_slice_does_not_matter() -> None:
    fleet = [*change(tpu_slice("z"), 1, draining=True), *tpu_slice("a")]
    assert workers_of(cycle(fleet, gang("train")), "train") == WHOLE
