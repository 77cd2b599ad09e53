"""The single change that would place what waits: tried, and given as data."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.worker import VM_IS_PREEMPTED, Worker, WorkerCondition
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import SchedulingResult
from iris_cli.core.units import parse_memory
from tests.support.fleet import (
    GIB,
    busy,
    change,
    cycle,
    explain,
    gang,
    host,
    job,
    pending,
    tainted,
    tpu_slice,
    training,
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
        "slice a has room when job train-7 ends",
        [training(each, "train-7") for each in tpu_slice("a")],
        gang("g"),
    ),
    (
        "slice b has room when job train-7 ends",
        [
            *(training(each, f"other-{at}") for at, each in enumerate(tpu_slice("a"))),
            *(training(each, "train-7") for each in tpu_slice("b")),
        ],
        gang("g"),
    ),
    ("", [training(each, f"other-{at}") for at, each in enumerate(tpu_slice("a"))], gang("g")),
    (
        "worker w has room when job big ends",
        [busy(busy(host("w"), "small", cpu=2), "big", cpu=14)],
        job("j", cpu=12),
    ),
    ("worker w has room when job big ends", [busy(host("w"), "big", memory=64 * GIB)], job("j")),
    ("request 16 cores instead of 17 cores: worker w fits", [host("w")], job("j", cpu=17)),
    ("", [host("w")], job("j", cpu=33)),
    (
        "slice a fits when a-2 (suspect) is healthy again",
        change(tpu_slice("a"), 2, condition=WorkerCondition.SUSPECT),
        gang("g"),
    ),
    (
        "slice a fits after `iris worker probe --accept-key a-2`, if you trust that host",
        change(tpu_slice("a"), 2, condition=WorkerCondition.UNTRUSTED),
        gang("g"),
    ),
    ("slice a fits after `iris worker uncordon a-2`", change(tpu_slice("a"), 2, draining=True), gang("g")),
    (
        "slice a fits in 20s, after the cool-down of a-2",
        change(tpu_slice("a"), 2, cooldown_until=1020.0),
        gang("g"),
    ),
    ("", change(change(tpu_slice("a"), 2, draining=True), 3, draining=True), gang("g")),
    (
        "slice a fits after `iris worker uncordon a-2`",
        change(tpu_slice("a"), 2, draining=True, cooldown_until=1020.0),
        gang("g"),
    ),
    ("", change(tpu_slice("a"), 2, draining=True, condition=WorkerCondition.SUSPECT), gang("g")),
    ("", change(tpu_slice("a"), 2, draining=True, unschedulable=True, reason="odd"), gang("g")),
    ("", [busy(replace(host("w"), draining=True), cpu=16)], job("j")),
    ("worker w fits in 20s, after the cool-down of w", [replace(host("w"), cooldown_until=1020.0)], job("j")),
    ("", [replace(host("w"), cooldown_until=1020.0, reason=VM_IS_PREEMPTED)], job("j")),
    (
        "rack group r fits after `iris worker uncordon b`",
        [host("a", rack="r"), *(replace(host(name, rack="r"), draining=True) for name in "bc")],
        gang("g", tpu=None, by="rack", replicas=2),
    ),
    (
        "",
        [host("a", rack="r"), *(replace(host(name, rack="r"), draining=True) for name in "bc")],
        gang("g", tpu=None, by="rack", replicas=3),
    ),
    ("", [busy(busy(host("w"), "j", cpu=8), "j", cpu=8)], job("j", cpu=16)),
    (
        "slice b has room when job old ends",
        [*tpu_slice("a"), *map(training, tpu_slice("b"))],
        gang("g", replicas=8, slices=2),
    ),
    (
        "slices a, b have room when job old ends",
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
        "rack group r has room when job big ends",
        [host("a", rack="r"), busy(host("b", rack="r"), "big", cpu=16), host("c")],
        gang("g", tpu=None, by="rack", replicas=2),
    ),
]


@pytest.mark.parametrize(("change", "fleet", "asked"), CHANGES, ids=range(len(CHANGES)))
def test_the_change_that_is_named_is_the_single_one_that_would_place_the_job(
    change: str, fleet: list[Worker], asked: Job
) -> None:
    assert str(explain(fleet, asked).change or "") == change


@pytest.mark.parametrize(
    ("worker", "later"),
    [
        (host("w"), {"cpu": 16}),
        (host("w"), {"memory": 64 * GIB}),
        (host("w", gpus=2), {"device": Device("gpu", count=2)}),
        (tpu_slice("w", vms=1)[0], {"device": Device("tpu")}),
    ],
    ids=["cpu", "memory", "gpus", "chips"],
)
def test_a_job_that_is_submitted_again_is_queued_behind_those_that_wait(
    worker: Worker, later: dict[str, Any]
) -> None:
    """A job can lose a constraint only if it is submitted again. Then `later` is ahead of it."""
    first = job("first", "region=eu", device=later.get("device"), order=0)
    result = cycle([worker], first, job("later", order=1, **later))
    assert [each.task.job for each in result.assignments] == ["later"]
    assert changed(result, "first", 0) is None
    assert changed(cycle([worker], first), "first", 0) == ("drop", "region=eu", 0)


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


@pytest.mark.parametrize("have", [GIB - 1, 2 * GIB - 1, 33_554_432_123, 31 * GIB + 12345])
def test_less_memory_fits_also_when_typed_as_shown(have: int) -> None:
    waiting = cycle([host("w", memory=have)], job("j", memory=have + GIB // 2)).waiting
    found = waiting.explain(TaskId(JobId("j"), 0)).change
    assert found is not None
    typed = str(found).removeprefix("request ").split(" of memory")[0]
    assert have * 0.98 < parse_memory(typed) <= found.amount == have


def test_nothing_like_what_was_asked_for_is_no_change() -> None:
    assert changed(cycle([host("w", cpu=4)], job("j", cpu=9)), "j", 0) is None


@pytest.mark.parametrize(
    "state",
    [
        {"draining": True, "condition": WorkerCondition.SUSPECT},
        {"unschedulable": True, "draining": True},
    ],
    ids=["draining and suspect", "unusable and draining"],
)
def test_a_worker_with_two_troubles_needs_more_than_one_change(state: dict[str, Any]) -> None:
    assert changed(cycle([replace(host("w"), **state)], job("j"), now=1000.0), "j", 0) is None


def test_uncordoning_a_worker_ends_its_cool_down_too() -> None:
    worker = replace(host("w"), quarantined=True, cooldown_until=1020.0)
    assert changed(cycle([worker], job("j"), now=1000.0), "j", 0) == ("uncordon", "w", 0)


def test_a_job_keeps_its_age_in_the_queue_of_another_priority() -> None:
    early, late = job("early", cpu=16), job("late", cpu=16, order=1, priority=Priority.HIGH)
    assert changed(cycle([host("w")], early, late), "early", 0) == ("priority", "high", 0)
    early, late = job("late", cpu=16), job("early", cpu=16, order=1)
    first = job("first", cpu=16, order=-1, priority=Priority.HIGH)
    assert changed(cycle([host("w")], first, early, late), "late", 0) is None


def test_a_cool_down_that_ends_after_the_scheduling_timeout_is_no_change() -> None:
    resting = replace(host("w"), cooldown_until=1020.0)
    for timeout, found in ((30.0, ("rests", "w", 0)), (15.0, None)):
        asked = job("j", scheduling_timeout=timeout, submitted_at=1000.0)
        assert changed(cycle([resting], asked, now=1000.0), "j", 0) == found


def test_what_comes_behind_could_come_before() -> None:
    first, second = job("first", cpu=16), job("second", cpu=16, order=1)
    result = cycle([host("w")], first, second)
    assert changed(result, "second", 0) == ("priority", "high", 0)
    assert str(result.waiting.explain(TaskId(JobId("second"), 0)).change) == (
        "set --priority high: worker w fits"
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
