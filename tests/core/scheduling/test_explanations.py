"""What `iris why` is made of: counts, near misses, and the single change that would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.job import Job
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import ConstraintCount, Explanation, NearMiss, ReasonKind
from iris_cli.core.worker import Worker, WorkerCondition
from tests.support.fleet import GIB, busy, change, cycle, gang, host, job, tainted, tpu_slice, training


def explain(fleet: list[Worker], asked: Job) -> Explanation:
    waiting = cycle(fleet, asked, now=1000.0, gang_reserve_after=0.0).waiting
    return waiting.explain(asked.id if asked.is_gang else TaskId(asked.id, 0))


def near(name: str, kind: ReasonKind, *lacking: str) -> NearMiss:
    return NearMiss(name=name, kind=kind, lacking=tuple(map(WorkerId, lacking)))


def test_each_constraint_is_counted_among_those_with_the_device() -> None:
    fleet = [
        *tpu_slice("a", region="us"),
        *tpu_slice("b", region="eu"),
        *tpu_slice("c", region="us", pool="x"),
        host("w", region="us", pool="x"),
    ]
    found = explain(fleet, gang("g", "region=eu", "pool=x"))
    assert (found.workers, found.equipped) == (13, 12)
    assert found.constraints == (
        ConstraintCount(constraint=parse_constraint("region=eu"), satisfied=4, workers=12),
        ConstraintCount(constraint=parse_constraint("pool=x"), satisfied=4, workers=12),
    )


def test_each_kind_counts_whom_it_refuses_of_those_left() -> None:
    fleet = [
        host("cpu"),
        tainted(host("tainted", gpus=1)),
        replace(host("sick", gpus=1), draining=True),
        busy(host("busy", gpus=1), gpus=(0,)),
        busy(replace(host("busy and sick", gpus=1), draining=True), gpus=(0,)),
    ]
    assert explain(fleet, job("j", device=Device("gpu"))).refused == (
        (ReasonKind.NO_SUCH_DEVICE, 1),
        (ReasonKind.TAINT, 1),
        (ReasonKind.UNHEALTHY, 2),
        (ReasonKind.GPUS, 1),
    )


def test_groups_are_counted_measured_and_the_nearest_miss_comes_first() -> None:
    broken = change(tpu_slice("a"), 1, draining=True)
    half = [training(worker) if number > 1 else worker for number, worker in enumerate(tpu_slice("c"))]
    found = explain([*broken, *map(training, tpu_slice("b")), *half, *tpu_slice("d", vms=2)], gang("g"))
    assert (found.group_by, found.groups_found, found.largest) == ("tpu-name", 4, ("a", 4))
    assert found.near_misses == (
        near("slice c", ReasonKind.CHIPS, "c-2", "c-3"),
        near("slice b", ReasonKind.CHIPS, "b-0", "b-1", "b-2", "b-3"),
        near("slice a", ReasonKind.UNHEALTHY, "a-1"),
        near("slice d", ReasonKind.GROUP_SHAPE, "d-0", "d-1"),
    )


EU: dict[str, Any] = {"region": "eu"}
US: dict[str, Any] = {"region": "us"}
CHANGES: list[tuple[str, list[Worker], Job]] = [
    (
        "drop region=eu: slice b fits",
        [*map(training, tpu_slice("a", **EU)), *tpu_slice("b", **US)],
        gang("g", "region=eu"),
    ),
    ("drop pool: worker w fits", [host("w", **EU)], job("j", "region=eu", "pool")),
    ("", [host("w", **US)], job("j", "region=eu", "pool")),
    ("tolerate maintenance: worker w fits", [tainted(host("w"))], job("j")),
    ("", [tainted(tainted(host("w")), "spot")], job("j")),
    (
        "slice a frees when job train-7 ends",
        [training(each, "train-7") for each in tpu_slice("a")],
        gang("g"),
    ),
    (
        "slice b frees when job train-7 ends",
        [
            *(training(each, f"other-{at}") for at, each in enumerate(tpu_slice("a"))),
            *(training(each, "train-7") for each in tpu_slice("b")),
        ],
        gang("g"),
    ),
    ("", [training(each, f"other-{at}") for at, each in enumerate(tpu_slice("a"))], gang("g")),
    (
        "worker w frees when job big ends",
        [busy(busy(host("w"), "small", cpu=2), "big", cpu=14)],
        job("j", cpu=12),
    ),
    ("worker w frees when job big ends", [busy(host("w"), "big", memory=64 * GIB)], job("j")),
    ("", [host("w")], job("j", cpu=17)),
    (
        "slice a fits when a-2 (suspect) is healthy again",
        change(tpu_slice("a"), 2, condition=WorkerCondition.SUSPECT),
        gang("g"),
    ),
    ("slice a fits after `iris worker uncordon a-2`", change(tpu_slice("a"), 2, draining=True), gang("g")),
    (
        "slice a fits in 20s, when a-2 has cooled down",
        change(tpu_slice("a"), 2, cooldown_until=1020.0),
        gang("g"),
    ),
    ("", change(change(tpu_slice("a"), 2, draining=True), 3, draining=True), gang("g")),
    (
        "slice b frees when job old ends",
        [*tpu_slice("a"), *map(training, tpu_slice("b"))],
        gang("g", replicas=8, slices=2),
    ),
    ("", [*map(training, tpu_slice("a")), *map(training, tpu_slice("b"))], gang("g", replicas=8, slices=2)),
    (
        "",
        [
            busy(host("a", rack="r"), "big", cpu=16),
            busy(replace(host("b", rack="r"), draining=True), "big", cpu=16),
            busy(host("c", rack="r"), "other", cpu=16),
            host("d", rack="r"),
        ],
        gang("g", tpu=None, by="rack", replicas=3),
    ),
    (
        "rack group r frees when job big ends",
        [host("a", rack="r"), busy(host("b", rack="r"), "big", cpu=16), host("c")],
        gang("g", tpu=None, by="rack", replicas=2),
    ),
]


@pytest.mark.parametrize(("change", "fleet", "asked"), CHANGES, ids=range(len(CHANGES)))
def test_the_single_change_that_would_place_it(change: str, fleet: list[Worker], asked: Job) -> None:
    assert explain(fleet, asked).change == change


def test_a_job_that_ends_settles_no_stop_of_another() -> None:
    first, second, *others = tpu_slice("a")
    fleet = [training(first, "train-7"), busy(second, "stopping"), *others]
    result = cycle(fleet, gang("g"), unconfirmed_stops=[second.id])
    assert result.waiting.explain(JobId("g")).change == ""
    assert cycle(fleet, gang("g")).waiting.explain(JobId("g")).change == "slice a frees when job train-7 ends"


def test_what_waits_for_nothing_that_workers_have_is_explained_by_its_reason_alone() -> None:
    odd = gang("odd", slices=3)
    explanation = cycle(tpu_slice("a"), odd).waiting.explain(JobId("odd"))
    assert [reason.kind for reason in explanation.reasons] == ["invalid"]
    assert explanation.near_misses == ()


@pytest.mark.parametrize(
    ("fleet", "asked", "words"),
    [
        ([*map(training, tpu_slice("a")), *tpu_slice("b")], gang("g"), "chose b: a busy"),
        ([*change(tpu_slice("a"), 2, draining=True), *tpu_slice("b")], gang("g"), "chose b: a draining"),
        (tpu_slice("a"), gang("g"), "chose a"),
        ([*tpu_slice("a"), *map(training, tpu_slice("b"))], gang("g"), "chose a"),
        ([busy(host("a"), cpu=16), host("b")], job("g"), "chose b: a busy"),
        ([host("a", region="us"), host("b", region="eu")], job("g", "region=eu"), "chose b"),
    ],
    ids=["busy slice", "draining slice", "the only", "the first", "busy worker", "never a candidate"],
)
def test_a_placement_has_a_reason_too(fleet: list[Worker], asked: Job, words: str) -> None:
    result = cycle(fleet, asked)
    assert result.chosen(TaskId(JobId("g"), 0)) == words


def test_what_was_not_placed_has_no_reason_for_a_placement() -> None:
    assert cycle([], job("j")).chosen(TaskId(JobId("j"), 0)) == ""
