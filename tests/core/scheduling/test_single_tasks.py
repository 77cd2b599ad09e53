"""Single tasks: which worker fits, and which of those that fit is the best."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import Assignment
from tests.support.fleet import (
    GIB,
    busy,
    cycle,
    gang,
    host,
    job,
    kinds,
    placed,
    tainted,
    tpu_slice,
    training,
    values,
    vm,
    workers_of,
)

CPU, GPU, ANY_GPU, ANY_TPU = Device("cpu"), Device("gpu", "A100"), Device("gpu"), Device("tpu")


@pytest.mark.parametrize(
    ("device", "fits"),
    [
        (None, ["cpu", "gpu", "tpu"]),
        (CPU, ["cpu", "gpu", "tpu"]),
        (GPU, ["gpu"]),
        (ANY_GPU, ["gpu"]),
        (Device("gpu", "H100"), []),
        (ANY_TPU, ["tpu"]),
        (Device("tpu", "v4-8"), ["tpu"]),
        (Device("tpu", "v4-32"), []),
    ],
    ids=str,
)
def test_a_device_must_be_of_the_same_type_and_of_the_variant_or_any(
    device: Device | None, fits: list[str]
) -> None:
    fleet = {"cpu": host("w"), "gpu": host("w", gpus=1), "tpu": vm("w", "a", 0, "v4-8")}
    asked = job("j", device=device)
    assert [name for name, worker in fleet.items() if cycle([worker], asked).assignments] == fits


@pytest.mark.parametrize(
    ("worker", "asked"),
    [
        (host("w", cpu=3.999), job("j", cpu=4)),
        (busy(host("w", cpu=16), cpu=12.5), job("j", cpu=4)),
        (host("w", memory=4 * GIB - 1), job("j", memory=4 * GIB)),
        (busy(host("w", memory=4 * GIB), memory=1), job("j", memory=4 * GIB)),
        (host("w", gpus=3), job("j", device=Device("gpu", count=4))),
        (busy(host("w", gpus=4), gpus=(2,)), job("j", device=Device("gpu", count=4))),
        (training(vm("w", "a", 0, "v4-8")), job("j", device=ANY_TPU)),
    ],
    ids=["cpu", "cpu in use", "memory", "memory in use", "gpus", "gpus in use", "chips in use"],
)
def test_what_does_not_fit_waits(worker: Worker, asked: Any) -> None:
    assert cycle([worker], asked).assignments == ()


def test_fractions_of_a_core_add_up_exactly() -> None:
    assert len(cycle([host("w", cpu=1)], job("j", cpu=0.1, replicas=11)).assignments) == 10


def test_cpu_work_runs_beside_the_tenant_of_the_chips() -> None:
    assert placed(cycle([training(vm("w", "a", 0, "v4-8"))], job("j"))) == {"j/task-0": "w"}


@pytest.mark.parametrize(
    "state",
    [
        {"condition": WorkerCondition.UNPROBED},
        {"condition": WorkerCondition.SUSPECT},
        {"condition": WorkerCondition.LOST},
        {"condition": WorkerCondition.AUTH_FAILED},
        {"condition": WorkerCondition.UNTRUSTED},
        {"draining": True},
        {"quarantined": True},
        {"unschedulable": True},
        {"cooldown_until": 1000.5},
    ],
    ids=lambda state: "-".join(map(str, state.values())),
)
def test_a_worker_that_is_not_well_takes_nothing_new(state: dict[str, Any]) -> None:
    result = cycle([replace(host("w"), **state)], job("j"), now=1000.0)
    assert result.assignments == ()
    assert kinds(result, "j", 0) == ["cooldown" if "cooldown_until" in state else "unhealthy"]


def test_a_worker_that_reports_no_device_has_its_cpu() -> None:
    worker = replace(host("w"), attributes={})
    assert placed(cycle([worker], job("j"), job("gpu", device=ANY_GPU))) == {"j/task-0": "w"}


# Taints


@pytest.mark.parametrize("value", ["true", True, "false", 1], ids=repr)
def test_a_taint_keeps_out_who_does_not_tolerate_it_whatever_its_value(value: Any) -> None:
    worker = tainted(host("w"), value=value)
    assert kinds(cycle([worker], job("j")), "j", 0) == ["taint"]
    assert placed(cycle([worker], job("j", tolerations=("maintenance",)))) == {"j/task-0": "w"}


def test_every_taint_must_be_tolerated() -> None:
    worker = tainted(tainted(host("w")), "spot")
    assert cycle([worker], job("j", tolerations=("spot",))).assignments == ()


def test_a_toleration_does_not_prefer_tainted_workers() -> None:
    fleet = [tainted(host("b")), host("c")]
    assert workers_of(cycle(fleet, job("j", tolerations=("maintenance",), cpu=16, replicas=2)), "j") == [
        "b",
        "c",
    ]


# Constraints


def test_preferred_constraints_only_rank() -> None:
    fleet = [host("a"), host("b", region="eu"), host("c", region="eu", pool="x")]
    asked = job("j", "~region=eu", "~pool=x", cpu=16, replicas=4)
    assert workers_of(cycle(fleet, asked), "j") == ["c", "b", "a"]


def test_a_preference_outranks_keeping_slices_whole() -> None:
    fleet = [host("z"), *tpu_slice("a", region="eu")]
    assert workers_of(cycle(fleet, job("j", "~region=eu")), "j") == ["a-0"]


@pytest.mark.parametrize("constraint", ["rank>=1", 'rank="2"', "rank=2.0", "rank in 3,x"])
def test_a_constraint_that_fits_no_type_waits_alone(constraint: str) -> None:
    fleet = [host("a", rank="2"), host("b", rank=0)] if ">" in constraint else [host("a", rank=2)]
    result = cycle(fleet, job("odd", constraint), job("even"))
    assert kinds(result, "odd", 0) == ["constraint"]
    assert list(placed(result)) == ["even/task-0"]


@pytest.mark.parametrize(
    ("fits", "waits"), [("rank=1", "rank=1.0"), ("~rank=2", "rank=2"), ("rank=1", 'rank="1"')]
)
def test_jobs_that_ask_for_nearly_the_same_are_kept_apart(fits: str, waits: str) -> None:
    result = cycle([host("w", rank=1)], job("fits", fits), job("waits", waits))
    assert list(placed(result)) == ["fits/task-0"]


# Rank


def test_cpu_work_prefers_slices_already_broken_into_then_hosts_that_break_none() -> None:
    *broken, last = tpu_slice("s")
    fleet = [*tpu_slice("a"), host("g", cpu=112, gpus=1), *broken, busy(last)]
    result = cycle(fleet, job("j", cpu=112, replicas=8))
    assert workers_of(result, "j") == ["s-0", "s-1", "s-2", "g", "a-0", "a-1", "a-2", "a-3"]


def test_work_of_24_tasks_breaks_into_one_of_twenty_idle_slices() -> None:
    fleet = [worker for number in range(20) for worker in tpu_slice(f"s{number:02}")]
    spread = [worker for number in range(4) for worker in fleet if worker.id.endswith(f"-{number}")]
    result = cycle(spread, job("j", cpu=16, replicas=24))
    assert sorted(set(workers_of(result, "j"))) == ["s00-0", "s00-1", "s00-2", "s00-3"]


def test_a_gang_that_holds_a_slice_makes_it_the_place_for_cpu_work() -> None:
    fleet = [*tpu_slice("a"), *map(training, tpu_slice("b"))]
    assert workers_of(cycle(fleet, job("j")), "j") == ["b-0"]


def test_a_slice_that_was_broken_into_in_this_cycle_counts_from_then_on() -> None:
    first, *others = tpu_slice("b")
    fleet = [*tpu_slice("a"), busy(first), *others]
    anywhere = [job(f"j{number}", cpu=9, order=number) for number in (0, 2)]
    in_a = job("in-a", "tpu-name=a", order=1)
    assert placed(cycle(fleet, *anywhere, in_a)) == {
        "j0/task-0": "b-0",
        "in-a/task-0": "a-0",
        "j2/task-0": "a-0",
    }


def test_accelerator_work_leaves_whole_slices_of_several_vms_alone() -> None:
    *broken, last = tpu_slice("b", vms=3)
    fleet = [*tpu_slice("a"), *broken, training(last)]
    assert workers_of(cycle(fleet, job("j", device=ANY_TPU, replicas=3)), "j") == ["b-0", "b-1", "a-0"]


def test_a_gpu_task_goes_to_the_worker_with_the_fewest_free_gpus_that_fit() -> None:
    fleet = [host("a", gpus=8), busy(host("b", gpus=8), gpus=(0, 1, 2)), host("c", gpus=2), host("d", gpus=4)]
    for count, worker in ((1, "c"), (2, "c"), (3, "d"), (5, "b"), (6, "a")):
        assert workers_of(cycle(fleet, job("j", device=Device("gpu", count=count))), "j") == [worker]


def test_free_gpus_are_counted_again_for_each_task_of_a_cycle() -> None:
    fleet = [host("a", gpus=8), host("b", gpus=8), host("c", gpus=6)]
    queue = [
        job(f"j{at}", device=Device("gpu", count=count), order=at) for at, count in enumerate((8, 1, 4, 2))
    ]
    assert placed(cycle(fleet, *queue)) == {
        "j0/task-0": "a",
        "j1/task-0": "c",
        "j2/task-0": "c",
        "j3/task-0": "b",
    }


def test_gpus_that_a_gang_took_in_this_cycle_make_a_worker_the_best_fit() -> None:
    fleet = [host("a", gpus=8), host("b", gpus=8), host("c", gpus=4)]
    rack = [replace(each, attributes={**each.attributes, **values({"rack": each.id})}) for each in fleet]
    ahead = job("ahead", device=Device("gpu", count=4))
    big = gang("g", "rack=b", tpu=None, by="rack", replicas=1, device=Device("gpu", count=7), order=1)
    last = job("last", device=Device("gpu"), order=2)
    assert placed(cycle(rack, ahead, big, last)) == {
        "ahead/task-0": "c",
        "g/task-0": "b",
        "last/task-0": "b",
    }


def test_a_preference_outranks_the_best_fit() -> None:
    fleet = [host("a", gpus=2), host("b", gpus=8, region="eu")]
    assert workers_of(cycle(fleet, job("j", "~region=eu", device=ANY_GPU)), "j") == ["b"]


LARGER, ONE = tpu_slice("a", "v4-16", 2), vm("z", "one", 0, "v4-8")


@pytest.mark.parametrize(
    ("one", "waits_for"),
    [
        (ONE, []),
        (training(ONE), ["chips"]),
        (replace(ONE, condition=WorkerCondition.LOST), ["unhealthy"]),
        (replace(ONE, draining=True), ["unhealthy"]),
        (vm("z", "one", 0, "v4-8", tpu_vm_count=1), []),
    ],
    ids=["free", "busy", "lost", "draining", "by its own account"],
)
def test_a_tpu_task_alone_takes_slices_of_one_vm_or_waits_for_them(one: Worker, waits_for: list[str]) -> None:
    result = cycle([*LARGER, one], job("j", device=ANY_TPU))
    assert placed(result) == ({} if waits_for else {"j/task-0": "z"})
    assert kinds(result, "j", 0) == waits_for


@pytest.mark.parametrize(
    ("others", "asked"),
    [
        ([], job("j", device=ANY_TPU)),
        ([ONE], job("j", device=Device("tpu", "v4-16"))),
        ([ONE], job("j", "region=us", device=ANY_TPU)),
        ([tainted(ONE)], job("j", device=ANY_TPU)),
        ([training(vm("z", "torn", 0, "v4-8", tpu_vm_count=2))], job("j", device=ANY_TPU)),
        ([host("z", gpus=8)], job("j", device=ANY_TPU)),
    ],
    ids=["none", "another type", "another region", "a taint", "a VM of a torn slice", "another device"],
)
def test_it_takes_a_vm_of_a_larger_slice_if_no_slice_of_one_vm_meets_its_constraints(
    others: list[Worker], asked: Any
) -> None:
    larger = [replace(each, attributes={**each.attributes, **values({"region": "us"})}) for each in LARGER]
    assert placed(cycle([*larger, *others], asked)) == {"j/task-0": "a-0"}


def test_why_says_that_the_others_are_vms_of_larger_slices() -> None:
    result = cycle([*LARGER, training(ONE, "old")], job("j", device=ANY_TPU))
    assert [str(each) for each in result.waiting[TaskId(JobId("j"), 0)]] == [
        "chips: the only suitable one-VM slice is busy (old)"
    ]
    explanation = result.waiting.explain(TaskId(JobId("j"), 0))
    assert [(miss.name, miss.text) for miss in explanation.near_misses] == [
        ("worker z", "used by old"),
        ("worker a-0", "a VM of a larger slice"),
        ("worker a-1", "a VM of a larger slice"),
    ]


def test_among_equals_the_worker_id_decides_as_text() -> None:
    fleet = [host(f"w-{number}") for number in (2, 10, 1)]
    assert workers_of(cycle(fleet, job("j", cpu=16, replicas=3)), "j") == ["w-1", "w-10", "w-2"]


def test_an_assignment_unpacks_into_task_and_worker() -> None:
    task, worker = Assignment(TaskId(JobId("a"), 0), WorkerId("w"), gpus=(1,))
    assert (str(task), worker) == ("a/task-0", "w")


@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("worker-id=7", ["7"]),
        ("worker-id!=7", ["c1", "c2"]),
        ("worker-id in c1,7", ["7", "c1"]),
        ("worker-id='c2'", ["c2"]),
        ("worker-id=c3", []),
        ("!worker-id", []),
    ],
)
def test_a_worker_is_named_by_its_id_which_is_always_text(typed: str, fits: list[str]) -> None:
    asked = job("j", typed, replicas=3)
    result = cycle([host("7", cpu=1), host("c1", cpu=1), host("c2", cpu=1)], asked)
    assert sorted({str(each.worker) for each in result.assignments}) == fits
