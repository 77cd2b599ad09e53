"""Why something waits: typed, in a fixed vocabulary, with need and have."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.model.job import Job
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import Reason, ReasonKind
from tests.support.fleet import (
    GIB,
    busy,
    change,
    cycle,
    gang,
    host,
    job,
    tainted,
    text_of,
    tpu_slice,
    training,
)

SUSPECT: dict[str, Any] = {"condition": WorkerCondition.SUSPECT}


def reasons(fleet: list[Worker], asked: Job, **options: Any) -> tuple[Reason, ...]:
    result = cycle(fleet, asked, **options)
    return result.waiting[asked.id if asked.is_gang else TaskId(asked.id, 0)]


def test_the_vocabulary_is_fixed_and_so_is_its_order() -> None:
    assert " ".join(ReasonKind) == (
        "invalid no_such_device constraint taint group_shape unhealthy cooldown chips gpus memory cpu time_left region "
        "secret after held throttled stopping reserved behind"
    )


ONE_WORKER: list[tuple[list[Worker], Job, str]] = [
    ([], job("j"), "no_such_device: there are no workers"),
    (
        [host("w")],
        job("j", device=Device("tpu", "v4-64")),
        "no_such_device: no worker or scale group has v4-64 (available: cpu); will never run",
    ),
    (
        [host("w", gpus=8)],
        job("j", device=Device("gpu", "a100")),
        "no_such_device: no worker or scale group has a100 (available: A100; did you mean 'A100'?); will never run",
    ),
    ([host("w", region="us")], job("j", "region=eu"), "constraint: no worker satisfies region=eu"),
    (
        [host("w", region="us")],
        job("j", "region=us", "pool", "zone=a"),
        "constraint: no worker satisfies pool, zone=a",
    ),
    (
        [host("c", region="eu"), host("g", gpus=4, region="us")],
        job("j", "region=eu", device=Device("gpu")),
        "constraint: no worker with a GPU satisfies region=eu",
    ),
    (
        [host("w", rank="7")],
        job("j", "rank=7"),
        "constraint: no worker satisfies rank=7 (rank: the worker has text '7', the constraint integer 7)",
    ),
    ([tainted(host("w"))], job("j"), "taint: every suitable worker is tainted: maintenance"),
    ([replace(host("w"), **SUSPECT)], job("j"), "unhealthy: the only worker is unavailable (w: suspect)"),
    (
        [replace(host("w"), unschedulable=True, reason="no worker id")],
        job("j"),
        "unhealthy: the only worker is unavailable (w: no worker id)",
    ),
    (
        [replace(host("w"), cooldown_until=1015.0)],
        job("j"),
        "cooldown: the only worker is cooling down (w: 15s left)",
    ),
    (
        [training(tpu_slice("a")[0], "train-7")],
        job("j", device=Device("tpu")),
        "chips: the only worker is busy (train-7)",
    ),
    (
        [busy(host("w", gpus=2), gpus=(0,))],
        job("j", device=Device("gpu", count=2)),
        "gpus: the only worker has fewer than 2 GPUs free (used by old)",
    ),
    (
        [busy(host("w"), memory=60 * GIB)],
        job("j", memory=8 * GIB),
        "memory: the only worker has less than 8GiB of memory free (used by old)",
    ),
    ([busy(host("w"), cpu=15.5)], job("j"), "cpu: the only worker has less than 1 core free (used by old)"),
    (
        [busy(host("small", cpu=2), "other"), busy(host("w"), cpu=15)],
        job("j", cpu=8),
        "cpu: both workers have less than 8 cores free (used by old)",
    ),
    (
        [host("w")],
        job("j", cpu=200),
        "cpu: no worker has 200 cores (largest: 16); will never run",
    ),
]


@pytest.mark.parametrize(
    ("fleet", "asked", "text"), ONE_WORKER, ids=[each[2].split(" (")[0] for each in ONE_WORKER]
)
def test_the_reason_why_a_single_task_waits_is_said_in_words(
    fleet: list[Worker], asked: Job, text: str
) -> None:
    found = reasons(fleet, asked, now=1000.0, gang_reserve_after=0.0)
    assert [str(reason) for reason in found] == [text]


UNPROBED = Worker(id=WorkerId("new"), condition=WorkerCondition.UNPROBED)


@pytest.mark.parametrize(
    ("asked", "offered", "never"),
    [
        (job("j", device=Device("tpu", "v4-64")), (), True),
        (job("j", device=Device("tpu", "v4-64")), (Device("tpu", "v4-32"),), True),
        (job("j", device=Device("tpu", "v4-64")), (Device("tpu", "v4-64"),), False),
        (gang("g", tpu="v4-64", replicas=8), (Device("tpu", "v4-32"), Device("tpu", "v4-64")), False),
        (job("j", device=Device("tpu")), (Device("tpu", "v4-32"),), False),
        (job("j", device=Device("gpu")), (Device("tpu", "v4-32"),), True),
        (job("j", cpu=200), (), True),
        (job("j", cpu=200), (Device("tpu", "v4-32"),), False),
        (job("j", cpu=200, device=Device("cpu")), (Device("tpu", "v4-32"),), False),
    ],
)
def test_what_a_scale_group_could_add_or_a_first_probe_find_is_not_said_never_to_run(
    asked: Job, offered: tuple[Device, ...], never: bool
) -> None:
    (reason,) = reasons([host("w")], asked, offered=offered)
    assert ("will never run" in reason.text) == never
    first, *_ = reasons([host("w"), UNPROBED], asked, offered=offered)
    assert "never" not in first.text


GROUPS: list[tuple[list[Worker], Job, str]] = [
    (
        [training(worker, "train-7") for worker in tpu_slice("a")],
        gang("g"),
        "chips: the only v4-32 slice is busy (train-7)",
    ),
    (
        [host("a", rack="r"), host("b", rack="r")],
        gang("g", tpu=None, by="rack"),
        "group_shape: no rack group has 4 workers (largest: r with 2)",
    ),
    (tpu_slice("a", vms=2), gang("g"), "group_shape: no slice has 4 workers (largest: a with 2)"),
    (
        [*tpu_slice("a")[:3], replace(host("w"), attributes=tpu_slice("a")[1].attributes)],
        gang("g"),
        "group_shape: no tpu-name group is a whole slice of 4 workers (a has workers numbered 0, 1, 1, 2)",
    ),
    (
        tpu_slice("a", tpu_vm_count=8),
        gang("g"),
        "group_shape: no tpu-name group is a whole slice of 4 workers (a has 4 of 8 workers)",
    ),
    (
        [host("a")],
        gang("g", tpu=None, by="rack"),
        "group_shape: no suitable worker has the attribute rack",
    ),
    (
        tpu_slice("a"),
        gang("g", replicas=8, slices=2),
        "group_shape: needs 2 slices, only 1 suitable",
    ),
    (
        tpu_slice("a"),
        gang("g", tpu="v5p-8"),
        "no_such_device: no worker or scale group has v5p-8 (available: v4-32); will never run",
    ),
    (
        change(tpu_slice("a"), 2, attributes=tainted(tpu_slice("a")[2]).attributes),
        gang("g"),
        "taint: every suitable slice is tainted: maintenance",
    ),
    (
        tpu_slice("a"),
        gang("g", "tpu-worker-id<3"),
        "constraint: no slice satisfies tpu-worker-id<3",
    ),
    (
        [*tpu_slice("a", region="us"), *tpu_slice("b", region="eu")],
        gang("g", "region=us", replicas=8, slices=2),
        "constraint: needs 2 slices, only 1 suitable: no other slice satisfies region=us",
    ),
    (
        [*tpu_slice("a"), *map(tainted, tpu_slice("b"))],
        gang("g", replicas=8, slices=2),
        "taint: needs 2 slices, only 1 suitable: all other suitable workers are tainted: maintenance",
    ),
    (
        [*(host(f"a{n}", rack="r", region="us") for n in range(8)), host("b", rack="s", region="eu")],
        gang("g", "region=eu", tpu=None, by="rack"),
        "group_shape: no suitable rack group has 4 workers (largest: s with 1)",
    ),
    (
        [*(host(f"a{n}", rack="r") for n in range(4)), host("g", gpus=4, rack="s")],
        gang("g", tpu=None, by="rack", device=Device("gpu")),
        "group_shape: no suitable rack group has 4 workers (largest: s with 1)",
    ),
    (
        [host("a", rack="r"), host("b", gpus=4, rack="r")],
        gang("g", tpu=None, by="rack", device=Device("gpu"), replicas=2),
        "no_such_device: no rack group has a GPU on 2 workers",
    ),
    (
        change(tpu_slice("a"), 2, attributes=host("a-2", tpu_name="a").attributes),
        gang("g"),
        "no_such_device: no slice has v4-32 on all its workers",
    ),
    (
        [*change(tpu_slice("a"), 2, draining=True), *change(tpu_slice("b"), 2, quarantined=True)],
        gang("g"),
        "unhealthy: both v4-32 slices are unavailable (worker a-2: draining)",
    ),
]


@pytest.mark.parametrize(("fleet", "asked", "text"), GROUPS, ids=[each[2].split(" (")[0] for each in GROUPS])
def test_the_reason_why_a_gang_waits_is_said_in_words(fleet: list[Worker], asked: Job, text: str) -> None:
    assert [str(reason) for reason in reasons(fleet, asked)] == [text]


def test_a_worker_counts_under_the_first_kind_that_speaks_against_it() -> None:
    everything = replace(busy(tainted(host("w")), cpu=16), draining=True)
    assert [reason.kind for reason in reasons([everything], job("j", "region=eu"))] == ["constraint"]
    assert [reason.kind for reason in reasons([everything], job("j"))] == ["taint"]
    assert [reason.kind for reason in reasons([everything], job("j", tolerations=("maintenance",)))] == [
        "unhealthy"
    ]


def test_who_is_right_but_busy_is_the_reason_not_who_is_wrong() -> None:
    fleet = [busy(host("a", region="eu"), cpu=16), host("b", region="us"), tainted(host("c", region="eu"))]
    assert [reason.kind for reason in reasons(fleet, job("j", "region=eu"))] == ["cpu"]


def test_several_reasons_stand_in_order_of_precedence_with_their_counts() -> None:
    fleet = [
        busy(host("a"), cpu=16),
        replace(host("b"), **SUSPECT),
        busy(host("c"), cpu=16),
        busy(host("d"), memory=64 * GIB),
    ]
    assert [(reason.kind, reason.refused) for reason in reasons(fleet, job("j"))] == [
        ("unhealthy", 1),
        ("memory", 1),
        ("cpu", 2),
    ]


@pytest.mark.parametrize(
    ("worker", "asked", "need", "have"),
    [
        (busy(host("w"), cpu=13.5), job("j", cpu=4), 4000, 2500),
        (busy(host("w"), memory=60 * GIB), job("j", memory=8 * GIB), 8 * GIB, 4 * GIB),
        (busy(host("w", gpus=4), gpus=(1,)), job("j", device=Device("gpu", count=4)), 4, 3),
        (busy(host("w", cpu=2), cpu=4), job("j"), 1000, 0),
    ],
    ids=["cores in thousandths", "bytes", "gpus", "a worker that shrank has nothing"],
)
def test_a_refusal_has_need_and_have(worker: Worker, asked: Job, need: int, have: int) -> None:
    (reason,) = reasons([worker], asked)
    assert (reason.need, reason.have) == (need, have)


def test_a_gangs_refusal_has_the_workers_it_needs_and_those_of_the_nearest_group() -> None:
    first, second, *others = tpu_slice("a")
    fleet = [training(first), training(second), *others, *map(training, tpu_slice("b"))]
    (reason,) = reasons(fleet, gang("g"))
    assert (reason.kind, reason.need, reason.have, reason.refused) == ("chips", 4, 2, 2)


def test_whose_stop_is_not_confirmed_is_named_and_nobody_who_runs_there() -> None:
    worker = busy(busy(host("w"), "healthy"), "stopped")
    stops = {worker.id: [JobId("stopped"), None]}  # None: what was taken for dead
    (reason,) = reasons([worker], job("j"), unconfirmed_stops=stops)
    assert reason.text == "the only worker is still stopping tasks (stopped)"
    for unnamed in ({worker.id: [None]}, [worker.id]):
        (reason,) = reasons([worker], job("j"), unconfirmed_stops=unnamed)
        assert reason.text == "the only worker is still stopping tasks"


def test_what_went_to_others_in_this_cycle_is_behind() -> None:
    result = cycle([host("w")], job("a", cpu=16), job("b", cpu=16))
    assert text_of(result, "b", 0) == "behind: waiting for free cores (assigned to a)"


def test_tasks_that_wait_for_the_same_have_the_same_reason() -> None:
    waiting = cycle([host("w", cpu=1)], job("j", replicas=3)).waiting
    first, second = (waiting[TaskId(JobId("j"), index)] for index in (1, 2))
    assert first is second


def test_nothing_that_was_placed_waits() -> None:
    waiting = cycle([host("w")], job("j")).waiting
    assert (len(waiting), list(waiting)) == (0, [])
    with pytest.raises(KeyError):
        waiting[TaskId(JobId("j"), 0)]
