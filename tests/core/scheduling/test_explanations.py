"""What `iris why` is made of: counts, near misses, and the single change that would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import ReasonKind, SchedulingResult
from iris_cli.core.scheduling.explain.explanation import ConstraintCount, NearMiss
from tests.support.fleet import (
    GIB,
    busy,
    change,
    cycle,
    explain,
    gang,
    host,
    job,
    tainted,
    tpu_slice,
    training,
    workers_of,
)


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
        near("slice c", ReasonKind.CHIPS, "used by old", "c-2", "c-3"),
        near("slice b", ReasonKind.CHIPS, "used by old", "b-0", "b-1", "b-2", "b-3"),
        near("slice a", ReasonKind.UNHEALTHY, "a-1: draining", "a-1"),
        near("slice d", ReasonKind.GROUP_SHAPE, "2 workers, needs 4", "d-0", "d-1"),
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
        (busy(host("w"), cpu=13.5), job("j", cpu=4), "cpu: 2.5 cores free, needs 4 cores"),
        (
            busy(host("w"), memory=60 * GIB),
            job("j", memory=8 * GIB),
            "memory: 4GiB of memory free, needs 8GiB of memory",
        ),
        (
            busy(host("w", gpus=4), gpus=(1,)),
            job("j", device=Device("gpu", count=4)),
            "gpus: 3 GPUs free, needs 4 GPUs",
        ),
        (busy(host("w", cpu=2), cpu=4), job("j"), "cpu: 0 cores free, needs 1 core"),
        (
            host("w", region="us"),
            job("j", "region=eu", "pool"),
            "constraint: region is us, pool is not set",
        ),
        (tainted(tainted(host("w")), "spot"), job("j", tolerations=("spot",)), "taint: maintenance"),
        (replace(host("w"), draining=True), job("j"), "unhealthy: w: draining"),
        (replace(host("w"), cooldown_until=1020.0), job("j"), "cooldown: w: 20s left"),
        (training(tpu_slice("w", vms=1)[0]), job("j", device=Device("tpu")), "chips: used by old"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_a_near_miss_says_what_it_lacks(worker: Worker, asked: Job, text: str) -> None:
    assert lacks([worker], asked) == [f"worker {worker.id}: {text}"]


def test_a_near_miss_of_a_gang_says_what_its_members_lack() -> None:
    assert lacks(tpu_slice("a", vms=2), gang("g")) == ["slice a: group_shape: 2 workers, needs 4"]
    assert lacks(tpu_slice("a", tpu_vm_count=8), gang("g")) == ["slice a: group_shape: not a whole slice"]
    assert lacks(tpu_slice("a", region="us"), gang("g", "region=eu")) == ["slice a: constraint: region is us"]


def test_a_group_without_the_device_on_some_hosts_is_a_near_miss() -> None:
    fleet = [host("a", rack="r"), host("b", rack="r", gpus=4)]
    asked = gang("g", tpu=None, by="rack", device=Device("gpu"), replicas=2)
    assert lacks(fleet, asked) == ["rack group r: no_such_device: a GPU is missing on a"]


def test_a_near_miss_names_the_stop_that_is_not_confirmed() -> None:
    worker = busy(host("w"), "healthy")
    for jobs, text in (
        (("stopped",), "still stopping stopped"),
        ((None,), "still stopping a task"),
    ):
        found = lacks([worker], job("j"), unconfirmed_stops={worker.id: jobs})
        assert found == [f"worker w: stopping: {text}"]


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
    words = "waiting for free cores (assigned to first (high), own)"
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
def test_a_probable_typo_is_pointed_out(constraint: str, hint: str | None) -> None:
    found = explain([host("w", region="us-west4", rank=1)], job("j", constraint))
    assert list(found.hints) == ([hint] if hint else [])


def test_a_worker_that_was_never_probed_may_have_the_device() -> None:
    new = Worker(id=WorkerId("b-1"), condition=WorkerCondition.UNPROBED)
    found = explain([*tpu_slice("a", "v4-16", 2), new], gang("g", tpu="v4-16", slices=2))
    assert list(found.hints) == ["1 worker not probed yet (iris doctor)"]


def test_what_waits_for_nothing_that_workers_have_is_explained_by_its_reason_alone() -> None:
    odd = gang("odd", slices=3)
    explanation = cycle(tpu_slice("a"), odd).waiting.explain(JobId("odd"))
    assert [reason.kind for reason in explanation.reasons] == ["invalid"]
    assert explanation.near_misses == ()


RACK = gang("g", "~pool=x", tpu=None, by="rack", replicas=2)


def liked(rack: str, pools: str) -> list[Worker]:
    """Idle hosts of a rack, one for each letter: that of its pool."""
    return [host(f"{rack}{number}", rack=rack, pool=pool) for number, pool in enumerate(pools)]


def full(rack: str, pools: str) -> list[Worker]:
    return [busy(each, cpu=16) for each in liked(rack, pools)]


@pytest.mark.parametrize(
    ("fleet", "asked", "words"),
    [
        ([*map(training, tpu_slice("a")), *tpu_slice("b")], gang("g"), "chose b: a busy"),
        ([*change(tpu_slice("a"), 2, draining=True), *tpu_slice("b")], gang("g"), "chose b: a draining"),
        (tpu_slice("a"), gang("g"), "chose a"),
        ([*tpu_slice("a"), *map(training, tpu_slice("b"))], gang("g"), "chose a"),
        ([busy(host("a"), cpu=16), host("b")], job("g"), "chose b: a busy"),
        ([host("a", region="us"), host("b", region="eu")], job("g", "region=eu"), "chose b"),
        ([busy(each, cpu=112) for each in tpu_slice("a")] + [host("w")], job("g"), "chose w"),
        ([busy(host("a", gpus=2), cpu=16), host("b", gpus=2)], job("g"), "chose b: a busy"),
        ([host("a"), host("b", cpu=32)], job("g", cpu=20), "chose b"),
        ([replace(host("a"), draining=True), host("b", cpu=32)], job("g", cpu=20), "chose b"),
        (
            [host("a0", rack="a"), host("a1", cpu=4, rack="a"), host("b0", rack="b"), host("b1", rack="b")],
            gang("g", tpu=None, by="rack", replicas=2, cpu=5),
            "chose b",
        ),
        ([busy(host("a"), cpu=16), host("b", pool="x")], job("g", "~pool"), "chose b"),
        ([busy(host("a", pool="x"), cpu=16), host("b", pool="x")], job("g", "~pool"), "chose b: a busy"),
        ([*full("a", "xx"), *liked("b", "xxxxx")], RACK, "chose b: a busy"),
        ([*full("a", "xy"), *liked("b", "xxxxx")], RACK, "chose b"),
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
        "no worse",
        "too small",
        "too small and draining",
        "group with too few large ones",
        "meets less",
        "meets as much",
        "members meet as much",
        "members meet less",
        "two slices",
    ],
)
def test_a_placement_has_a_reason_too(fleet: list[Worker], asked: Job, words: str) -> None:
    result = cycle(fleet, asked)
    chosen = ", ".join(dict.fromkeys(str(group) for group in groups_of(result, fleet, asked)))
    assert words.partition(":")[0] == f"chose {chosen}"
    assert result.notable_choices() == ({TaskId(JobId("g"), 0): words} if ": " in words else {})


def groups_of(result: SchedulingResult, fleet: list[Worker], asked: Job) -> Iterator[str]:
    """The groups of a gang's workers, or the workers of another job."""
    workers = {str(each.id): each for each in fleet}
    for name in workers_of(result, asked.id):
        key = asked.coscheduling.group_by if asked.coscheduling else None
        yield str(workers[name].attributes[key]) if key else name


def test_who_was_served_before_is_a_reason_too() -> None:
    first, second = gang("first", priority=Priority.HIGH), gang("second")
    result = cycle([*tpu_slice("a"), *tpu_slice("b")], first, second)
    assert result.notable_choices() == {TaskId(JobId("second"), 0): "chose b: a assigned to first (high)"}


def test_other_tasks_of_the_same_job_are_no_reason() -> None:
    jobs = job("j", cpu=16, replicas=2), job("k", cpu=16, order=1)
    assert cycle([host("a"), host("b"), host("c")], *jobs).notable_choices() == {
        TaskId(JobId("k"), 0): "chose c: a assigned to j, b assigned to j"
    }
    assert cycle([host("a"), host("b")], jobs[0]).notable_choices() == {}


def test_without_placements_there_is_nothing_to_tell() -> None:
    assert cycle([], job("j")).notable_choices() == {}


def test_a_slice_that_was_too_few_for_a_gang_went_to_a_job_behind_it() -> None:
    fleet = [*change(tpu_slice("a"), 0, draining=True), *tpu_slice("b")]
    result = cycle(fleet, gang("pair", replicas=8, slices=2), gang("later", order=1))
    assert [str(each) for each in result.waiting[JobId("pair")]] == [
        "unhealthy: needs 2 slices, but 1 of 2 v4-32 slices is unavailable (worker a-0: draining)",
        "behind: waiting for a free slice (assigned to later)",
    ]
    assert result.waiting.explain(JobId("pair")).near_misses[0].text == "assigned to later"


def test_a_worker_whose_allocation_ends_too_soon_is_not_called_busy() -> None:
    result = cycle([replace(host("a"), ends_at=1100.0), host("b")], job("g", timeout=600.0), now=1000.0)
    assert result.notable_choices() == {TaskId(JobId("g"), 0): "chose b: a ends too soon"}
