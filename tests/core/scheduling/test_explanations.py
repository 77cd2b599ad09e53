"""What `iris why` is made of: counts, near misses, and the single change that would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.job import Job, Priority
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import ConstraintCount, Explanation, NearMiss, ReasonKind, SchedulingResult
from iris_cli.core.worker import Worker, WorkerCondition
from tests.support.fleet import (
    GIB,
    busy,
    change,
    cycle,
    gang,
    host,
    job,
    pending,
    tainted,
    tpu_slice,
    training,
)


def explain(fleet: list[Worker], asked: Job) -> Explanation:
    waiting = cycle(fleet, asked, now=1000.0, gang_reserve_after=0.0).waiting
    return waiting.explain(asked.id if asked.is_gang else TaskId(asked.id, 0))


def near(name: str, kind: ReasonKind, text: str, *lacking: str) -> NearMiss:
    return NearMiss(name=name, kind=kind, lacking=tuple(map(WorkerId, lacking)), text=text)


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
        near("slice c", ReasonKind.CHIPS, "held by old", "c-2", "c-3"),
        near("slice b", ReasonKind.CHIPS, "held by old", "b-0", "b-1", "b-2", "b-3"),
        near("slice a", ReasonKind.UNHEALTHY, "a-1: draining", "a-1"),
        near("slice d", ReasonKind.GROUP_SHAPE, "2 workers, not 4", "d-0", "d-1"),
    )


def test_each_dimension_that_is_asked_for_is_counted_by_itself() -> None:
    fleet = [
        busy(host("a", gpus=2), cpu=16),
        busy(host("b", gpus=2), memory=63 * GIB, gpus=(1,)),
        busy(busy(host("c", gpus=2), cpu=16), gpus=(0,)),
        host("no gpu", cpu=1),
    ]
    found = explain(fleet, job("j", device=Device("gpu", count=2), memory=2 * GIB, cpu=1.5))
    assert [(each.kind.value, each.need, each.lacking, each.workers) for each in found.dimensions] == [
        ("cpu", 1500, 2, 3),
        ("memory", 2 * GIB, 1, 3),
        ("gpus", 2, 2, 3),
    ]


def lacks(fleet: list[Worker], asked: Job, **options: Any) -> list[str]:
    waiting = cycle(fleet, asked, now=1000.0, **options).waiting
    found = waiting.explain(asked.id if asked.is_gang else TaskId(asked.id, 0)).near_misses
    return [f"{near.name}: {near.kind}: {near.text}" for near in found]


@pytest.mark.parametrize(
    ("worker", "asked", "text"),
    [
        (busy(host("w"), cpu=13.5), job("j", cpu=4), "cpu: 2.5 cores free, not 4 cores"),
        (
            busy(host("w"), memory=60 * GIB),
            job("j", memory=8 * GIB),
            "memory: 4GiB of memory free, not 8GiB of memory",
        ),
        (
            busy(host("w", gpus=4), gpus=(1,)),
            job("j", device=Device("gpu", count=4)),
            "gpus: 3 GPUs free, not 4 GPUs",
        ),
        (busy(host("w", cpu=2), cpu=4), job("j"), "cpu: 0 cores free, not 1 core"),
        (host("w", region="us"), job("j", "region=eu", "pool"), "constraint: region is us, no pool"),
        (tainted(tainted(host("w")), "spot"), job("j", tolerations=("spot",)), "taint: maintenance"),
        (replace(host("w"), draining=True), job("j"), "unhealthy: w: draining"),
        (replace(host("w"), cooldown_until=1020.0), job("j"), "cooldown: w for another 20s"),
        (training(tpu_slice("w", vms=1)[0]), job("j", device=Device("tpu")), "chips: held by old"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_a_near_miss_says_what_it_lacks(worker: Worker, asked: Job, text: str) -> None:
    assert lacks([worker], asked) == [f"worker {worker.id}: {text}"]


def test_a_near_miss_of_a_gang_says_what_its_members_lack() -> None:
    assert lacks(tpu_slice("a", vms=2), gang("g")) == ["slice a: group_shape: 2 workers, not 4"]
    assert lacks(tpu_slice("a", tpu_vm_count=8), gang("g")) == ["slice a: group_shape: not a whole slice"]
    assert lacks(tpu_slice("a", region="us"), gang("g", "region=eu")) == ["slice a: constraint: region is us"]


def test_who_came_before_is_named_with_the_workers_it_took() -> None:
    first = job("first", cpu=16, priority=Priority.HIGH)
    jobs = [
        first,
        job("own", cpu=9, replicas=2, order=1),
        job("after", cpu=5, order=2),
        job("like", cpu=9, order=3),
    ]
    result = cycle([host("a"), host("b")], *jobs)
    own, like = (
        result.waiting.explain(TaskId(JobId(name), index)) for name, index in (("own", 1), ("like", 0))
    )
    assert [(str(each), each.workers) for each in own.behind] == [("first (high)", ("a",)), ("own", ("b",))]
    assert [str(each) for each in like.behind] == ["first (high)", "own", "after"]
    words = "2 of 2 workers went to those ahead of it in this cycle: first (high), own"
    assert [reason.text for reason in (*own.reasons, *like.reasons)] == [words, words]


@pytest.mark.parametrize(
    ("constraint", "hint"),
    [
        ("region=us-west-4", "no worker has region 'us-west-4'; did you mean 'us-west4'?"),
        ("regoin=us-west4", "no worker has an attribute 'regoin'; did you mean 'region'?"),
        ('rank="1"', "no worker has rank '1'; did you mean the integer 1?"),
        ("region=mars", None),
        ("region!=us-west4", None),
    ],
)
def test_a_slip_of_the_pen_is_pointed_out(constraint: str, hint: str | None) -> None:
    found = explain([host("w", region="us-west4", rank=1)], job("j", constraint))
    assert list(found.hints) == ([hint] if hint else [])


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
    ("ask for 16 cores instead of 17 cores: worker w fits", [host("w")], job("j", cpu=17)),
    ("", [host("w")], job("j", cpu=33)),
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
    (
        "slice a, slice b free when job old ends",
        [*map(training, tpu_slice("a")), *map(training, tpu_slice("b"))],
        gang("g", replicas=8, slices=2),
    ),
    (
        "",
        [training(each, f"old-{each.id[0]}") for each in (*tpu_slice("a"), *tpu_slice("b"))],
        gang("g", replicas=8, slices=2),
    ),
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
    assert str(explain(fleet, asked).change or "") == change


def test_a_job_that_ends_settles_no_stop_of_another() -> None:
    first, second, *others = tpu_slice("a")
    fleet = [training(first, "train-7"), busy(second, "stopping"), *others]
    result = cycle(fleet, gang("g"), unconfirmed_stops=[second.id])
    assert result.waiting.explain(JobId("g")).change is None
    assert changed(cycle(fleet, gang("g")), "g") == ("job_ends", "train-7", 0)


def test_a_job_that_ends_settles_its_own_stops_but_none_of_what_was_taken_for_dead() -> None:
    fleet = [training(each, "train-7") for each in tpu_slice("a")]
    stopping = {each.id: [JobId("train-7")] for each in fleet}
    result = cycle(fleet, gang("g"), unconfirmed_stops=stopping)
    assert changed(result, "g") == ("job_ends", "train-7", 0)
    haunted = {**stopping, fleet[2].id: [JobId("train-7"), None]}
    assert changed(cycle(fleet, gang("g"), unconfirmed_stops=haunted), "g") is None


def changed(result: SchedulingResult, name: str, index: int | None = None) -> tuple[str, str, int] | None:
    """The single change as data: its kind, what it applies to, and how much to ask for."""
    key = JobId(name) if index is None else TaskId(JobId(name), index)
    found = result.waiting.explain(key).change
    return (found.kind.value, found.subject, found.amount) if found else None


BLOCKED = change(tpu_slice("a"), 1, draining=True)
MIXED: list[tuple[list[Worker], Job, tuple[str, str, int]]] = [
    ([host("w", region="us")], job("j", "region=eu"), ("drop", "region=eu", 0)),
    ([tainted(host("w"))], job("j"), ("tolerate", "maintenance", 0)),
    ([*map(training, tpu_slice("a"))], gang("j"), ("job_ends", "old", 0)),
    (BLOCKED, gang("j"), ("uncordon", "a-1", 0)),
    (change(BLOCKED, 1, draining=False, quarantined=True), gang("j"), ("uncordon", "a-1", 0)),
    ([replace(host("w"), condition=WorkerCondition.LOST)], job("j"), ("recovers", "w", 0)),
    ([replace(host("w"), unschedulable=True)], job("j"), ("recovers", "w", 0)),
    ([replace(host("w"), cooldown_until=1001.0)], job("j"), ("rests", "w", 0)),
    ([host("v", cpu=2), host("w", cpu=9.5)], job("j", cpu=10), ("less_cpu", "", 9500)),
    ([host("w", memory=GIB)], job("j", memory=2 * GIB), ("less_memory", "", GIB)),
    ([host("w", gpus=2)], job("j", device=Device("gpu", count=3)), ("fewer_gpus", "", 2)),
    (
        [host("a", rack="r"), host("b", 10, rack="r"), host("c", 9, rack="r"), host("d", 12, rack="s")],
        gang("j", tpu=None, by="rack", replicas=2, cpu=16),
        ("less_cpu", "", 10000),
    ),
]


@pytest.mark.parametrize(
    ("fleet", "asked", "data"), MIXED, ids=[f"{at}-{each[2][0]}" for at, each in enumerate(MIXED)]
)
def test_the_single_change_is_data(fleet: list[Worker], asked: Job, data: tuple[str, str, int]) -> None:
    assert changed(cycle(fleet, asked, now=1000.0), "j", None if asked.is_gang else 0) == data


def test_nothing_like_what_was_asked_for_is_no_change() -> None:
    assert changed(cycle([host("w", cpu=4)], job("j", cpu=9)), "j", 0) is None


@pytest.mark.parametrize(
    "state",
    [
        {"draining": True, "condition": WorkerCondition.SUSPECT},
        {"quarantined": True, "cooldown_until": 1020.0},
        {"unschedulable": True, "draining": True},
    ],
    ids=["draining and suspect", "quarantined and cooling", "unusable and draining"],
)
def test_a_worker_with_two_troubles_needs_more_than_one_change(state: dict[str, Any]) -> None:
    assert changed(cycle([replace(host("w"), **state)], job("j"), now=1000.0), "j", 0) is None


def test_what_comes_behind_could_come_before() -> None:
    first, second = job("first", cpu=16), job("second", cpu=16, order=1)
    result = cycle([host("w")], first, second)
    assert changed(result, "second", 0) == ("priority", "high", 0)
    assert str(result.waiting.explain(TaskId(JobId("second"), 0)).change) == (
        "launch it with --priority high: worker w fits"
    )


def test_a_task_waits_for_the_end_of_another_of_its_job_and_not_for_that_of_the_job() -> None:
    fleet = [busy(host("w"), "j", cpu=16)]
    result = cycle(fleet, job("j", cpu=16, replicas=2), tasks=pending([job("j", replicas=2)])[1:])
    assert changed(result, "j", 1) == ("task_ends", "j/task-0", 0)


def test_room_for_which_somebody_else_waits_before_is_no_single_change() -> None:
    fleet = [busy(host("w"), "old", cpu=16)]
    result = cycle(fleet, job("first", cpu=16), job("second", cpu=16, order=1))
    assert changed(result, "first", 0) == ("job_ends", "old", 0)
    assert changed(result, "second", 0) is None


def test_a_job_that_ends_leaves_the_queue_too() -> None:
    both = [busy(host("w"), "first", cpu=16)]
    waiting = [job("first", cpu=16, replicas=2), job("second", cpu=16, order=1)]
    result = cycle(both, *waiting, tasks=pending(waiting)[1:])
    assert changed(result, "second", 0) == ("job_ends", "first", 0)


def test_what_was_taken_in_this_cycle_by_who_came_later_counts_as_free() -> None:
    """Without the constraint the job has its turn before `late`, which took the only other worker."""
    fleet = [busy(host("a", region="eu"), "old", cpu=16), host("b", region="us")]
    result = cycle(fleet, job("j", "region=eu", cpu=16), job("late", cpu=16, order=1))
    assert changed(result, "j", 0) == ("drop", "region=eu", 0)


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
        ([*map(training, tpu_slice("a")), host("w")], job("g"), "chose w"),
        ([busy(host("a"), cpu=16), host("b", pool="x")], job("g", "~pool"), "chose b"),
        ([busy(host("a", pool="x"), cpu=16), host("b", pool="x")], job("g", "~pool"), "chose b: a busy"),
        (
            [*tpu_slice("a"), *map(training, tpu_slice("b")), *tpu_slice("c")],
            gang("g", replicas=8, slices=2),
            "chose a, c",
        ),
    ],
    ids=[
        "busy slice",
        "draining slice",
        "the only",
        "the first",
        "busy worker",
        "never a candidate",
        "worse anyway",
        "meets less",
        "meets as much",
        "two slices",
    ],
)
def test_a_placement_has_a_reason_too(fleet: list[Worker], asked: Job, words: str) -> None:
    result = cycle(fleet, asked)
    assert result.chosen(TaskId(JobId("g"), 0)) == words


def test_who_was_served_before_is_a_reason_too() -> None:
    first, second = gang("first", priority=Priority.HIGH), gang("second")
    result = cycle([*tpu_slice("a"), *tpu_slice("b")], first, second)
    assert result.chosen(TaskId(JobId("second"), 3)) == "chose b: a went to first (high)"
    assert result.chosen(TaskId(JobId("first"), 0)) == "chose a"
    assert result.worth_telling() == {TaskId(JobId("second"), 0): "chose b: a went to first (high)"}


def test_what_was_not_placed_has_no_reason_for_a_placement() -> None:
    assert cycle([], job("j")).chosen(TaskId(JobId("j"), 0)) == ""
