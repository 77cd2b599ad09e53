"""A task that needs much of a worker reserves one, and only what would delay it is turned away there."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.core.ids import AttemptId, TaskId
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.worker import Claim, Worker, WorkerCondition
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import SchedulingResult
from tests.support.fleet import (
    GIB,
    busy,
    cycle,
    host,
    job,
    kinds,
    placed,
    tainted,
    text_of,
    tpu_slice,
    training,
    vm,
    workers_of,
)

LONG = 600.0


def gpus(count: int) -> Device:
    return Device("gpu", count=count)


def large(**fields: Any) -> Job:
    return job("large", **fields)


def later(name: str = "later", **fields: Any) -> Job:
    return job(name, order=9, submitted_at=LONG, **fields)


def reserved(result: SchedulingResult) -> dict[str, tuple[str, ...]]:
    return {str(key): names for key, names in result.reservations.items()}


def half_full(name: str = "w", **fields: Any) -> Worker:
    """A host of 16 cores, 64 GiB and 8 GPUs, of which four attempts hold half."""
    worker = host(name, gpus=8, **fields)
    for gpu in range(4):
        worker = busy(worker, f"old-{gpu}", cpu=2, memory=8 * GIB, gpus=(gpu,))
    return worker


HALF = busy(host("w", gpus=8), cpu=8, memory=32 * GIB, gpus=(0, 1, 2, 3))
"""A worker of the same size, of which one attempt holds half."""


@pytest.mark.parametrize(
    ("worker", "needs", "needs_less"),
    [
        (half_full(), {"device": gpus(8)}, {"device": gpus(1)}),
        (half_full(), {"cpu": 16}, {"cpu": 1}),
        (half_full(), {"memory": 64 * GIB}, {"memory": GIB}),
        (training(vm("w", "a", 0, "v4-8")), {"device": Device("tpu")}, {"device": Device("tpu")}),
    ],
    ids=["gpus", "cores", "memory", "chips"],
)
def test_what_would_delay_it_is_turned_away_and_told_so(
    worker: Worker, needs: dict[str, Any], needs_less: dict[str, Any]
) -> None:
    result = cycle([worker], large(**needs), later(**needs_less), now=LONG)
    assert result.assignments == ()
    assert reserved(result) == {"large/task-0": ("w",)}
    assert text_of(result, "large", 0).endswith("; worker w reserved for it")
    if not worker.chips:
        assert text_of(result, "later", 0) == ("reserved: the only worker is reserved for large/task-0")


@pytest.mark.parametrize(
    ("needs", "needs_less"),
    [
        ({"device": gpus(8)}, {"cpu": 8}),
        ({"device": gpus(8), "cpu": 4}, {"cpu": 8}),
        ({"device": gpus(8)}, {"memory": 32 * GIB}),
        ({"cpu": 14}, {"device": gpus(4), "cpu": 2}),
        ({"cpu": 10}, {"cpu": 6}),
        ({"device": gpus(6)}, {"device": gpus(2)}),
        ({"memory": 40 * GIB}, {"memory": 24 * GIB}),
    ],
    ids=[
        "other device",
        "cores beside GPUs",
        "memory beside GPUs",
        "GPUs beside cores",
        "cores left over",
        "GPUs left over",
        "memory left over",
    ],
)
def test_what_leaves_it_its_room_runs(needs: dict[str, Any], needs_less: dict[str, Any]) -> None:
    """Beside another device, or in the room that is left whichever attempts end first."""
    result = cycle([HALF], large(**needs), later(**needs_less), now=LONG)
    assert placed(result) == {"later/task-0": "w"}
    assert reserved(result) == {"large/task-0": ("w",)}


def test_room_is_left_over_only_where_any_set_of_ends_leaves_it() -> None:
    """After the end of 6 cores 14 are free, after that of 4 and 3 cores 15: one core may be taken, two may not."""
    worker = busy(busy(busy(host("w"), cpu=6), cpu=4), cpu=3)
    needs_9 = large(cpu=9)
    assert workers_of(cycle([worker], needs_9, later(cpu=1), now=LONG), "later") == []
    needs_8 = large(cpu=8)
    assert workers_of(cycle([worker], needs_8, later(cpu=1), now=LONG), "later") == ["w"]
    assert workers_of(cycle([worker], needs_8, later(cpu=2), now=LONG), "later") == []


def test_what_is_left_over_is_given_once() -> None:
    result = cycle([HALF], large(device=gpus(6)), later(device=gpus(1), replicas=3), now=LONG)
    assert len(result.assignments) == 2
    assert kinds(result, "later", 2) == ["reserved"]


def test_a_task_with_a_higher_rank_is_not_turned_away() -> None:
    urgent = later("urgent", device=gpus(1), priority=Priority.HIGH)
    assert workers_of(cycle([half_full()], large(device=gpus(8)), urgent, now=LONG), "urgent") == ["w"]


@pytest.mark.parametrize(
    ("now", "options"),
    [(LONG - 0.001, {}), (1e9, {"gang_reserve_after": 0.0})],
    ids=["too early", "switched off"],
)
def test_nothing_is_reserved_too_early_or_where_it_is_switched_off(
    now: float, options: dict[str, Any]
) -> None:
    result = cycle([half_full()], large(device=gpus(8)), later(device=gpus(1)), now=now, **options)
    assert workers_of(result, "later") == ["w"]
    assert result.reservations == {}


FLATTENED = busy(host("z", cpu=64, memory=256 * GIB), cpu=64)
FOUR = busy(host("four", gpus=4), gpus=(0,))


@pytest.mark.parametrize(
    ("fleet", "asked", "reserves"),
    [
        ([half_full()], {"device": gpus(5)}, True),
        ([busy(half_full(), gpus=(4, 5)), busy(FOUR, gpus=(1,))], {"device": gpus(3)}, False),
        ([busy(half_full(), gpus=(4, 5, 6)), FOUR], {"device": gpus(4)}, True),
        ([busy(half_full(), cpu=7)], {"cpu": 8}, True),
        ([busy(half_full(), cpu=7)], {"cpu": 7.999}, False),
        ([busy(half_full(), cpu=7), FLATTENED], {"cpu": 8}, False),
        ([busy(half_full(), memory=32 * GIB)], {"memory": 32 * GIB}, True),
        ([busy(half_full(), memory=32 * GIB)], {"memory": 31 * GIB}, False),
        (list(map(training, tpu_slice("a"))), {"device": Device("tpu", "v4-32"), "cpu": 0.1}, True),
    ],
    ids=[
        "half of the GPUs",
        "less than half",
        "a whole host of GPUs",
        "half of the cores",
        "less than half of the cores",
        "half of a smaller worker",
        "half of the memory",
        "less than half of the memory",
        "a VM of a slice",
    ],
)
def test_a_whole_accelerator_host_or_half_of_the_largest_worker_is_much(
    fleet: list[Worker], asked: dict[str, Any], reserves: bool
) -> None:
    result = cycle(fleet, large(**asked), now=LONG)
    assert result.assignments == ()
    assert bool(result.reservations) is reserves


def test_only_workers_that_may_serve_it_count_as_the_largest() -> None:
    fleet = [busy(host("w", pool="small"), cpu=9), FLATTENED]
    asked = job("large", "pool=small", cpu=8)
    assert reserved(cycle(fleet, asked, now=LONG)) == {"large/task-0": ("w",)}


def test_a_job_reserves_one_worker_however_many_of_its_tasks_wait() -> None:
    fleet = [half_full("w1"), half_full("w2"), half_full("w3")]
    asked = [large(device=gpus(8), replicas=9), job("second", device=gpus(8), order=1)]
    assert reserved(cycle(fleet, *asked, now=LONG)) == {"large/task-0": ("w1",), "second/task-0": ("w2",)}


def test_the_first_task_without_a_place_is_the_one_that_reserves() -> None:
    fleet = [host("a", gpus=8), busy(host("b", gpus=8), gpus=(0,))]
    result = cycle(fleet, large(device=gpus(8), replicas=3), now=LONG)
    assert placed(result) == {"large/task-0": "a"}
    assert reserved(result) == {"large/task-1": ("a",)}


def test_the_worker_with_the_fewest_attempts_to_wait_for_is_reserved_then_the_first_by_id() -> None:
    def held_by(name: str, *counts: int) -> Worker:
        worker, first = host(name, gpus=8), 0
        for count in counts:
            worker = busy(worker, gpus=tuple(range(first, first + count)))
            first += count
        return worker

    fleet = [held_by("a", 1, 1, 1, 1), held_by("b", 2, 2, 2), held_by("c", 5, 3), held_by("d", 4, 4)]
    assert reserved(cycle(fleet, large(device=gpus(8)), now=LONG)) == {"large/task-0": ("c",)}
    assert reserved(cycle(fleet, large(device=gpus(5)), now=LONG)) == {"large/task-0": ("a",)}


def test_attempts_that_need_not_end_do_not_count() -> None:
    crowded = busy(host("b", gpus=8), gpus=tuple(range(8)))
    for _ in range(5):
        crowded = busy(crowded, "cpu")
    fleet = [busy(busy(host("a", gpus=8), gpus=(0,)), gpus=(1,)), crowded]
    assert reserved(cycle(fleet, large(device=gpus(8)), now=LONG)) == {"large/task-0": ("b",)}


@pytest.mark.parametrize(
    "fields",
    [{"draining": True}, {"cooldown_until": LONG + 5}, {"condition": WorkerCondition.SUSPECT}, {"gpus": 7}],
    ids=["draining", "cooling", "suspect", "small"],
)
def test_a_worker_that_lacks_more_than_busy_capacity_is_not_reserved(fields: dict[str, Any]) -> None:
    sick = replace(half_full("a"), **fields)
    assert reserved(cycle([sick, half_full("b")], large(device=gpus(8)), now=LONG)) == {
        "large/task-0": ("b",)
    }


def test_neither_is_one_with_a_taint_or_another_region() -> None:
    fleet = [tainted(half_full("a", region="us")), half_full("b", region="eu"), half_full("c", region="us")]
    asked = job("large", "region=us", device=gpus(8))
    assert reserved(cycle(fleet, asked, now=LONG)) == {"large/task-0": ("c",)}


def test_the_one_change_of_who_is_turned_away_is_a_higher_priority() -> None:
    result = cycle([half_full()], large(device=gpus(8)), later(device=gpus(2)), now=LONG)
    explanation = result.waiting.explain(TaskId(later().id, 0))
    assert str(explanation.change) == "set --priority high: worker w fits"
    assert [str(miss.text) for miss in explanation.near_misses] == ["large/task-0"]


def test_the_one_change_of_who_reserves_counts_what_is_free_on_its_worker() -> None:
    result = cycle([half_full()], large(device=gpus(8)), now=LONG)
    change = result.waiting.explain(TaskId(large().id, 0)).change
    assert str(change) == "request 4 GPUs instead of 8 GPUs: worker w fits"


# Over time: a worker, a large task, and small ones that come for ever


def with_claim(worker: Worker, task: TaskId, asked: Job, held: tuple[int, ...]) -> Worker:
    resources = asked.resources
    claim = Claim(cpu_millis=resources.cpu_millis, memory=resources.memory, gpus=held)
    return replace(worker, claims={**worker.claims, AttemptId(task, 0): claim})


def without(worker: Worker, attempt: AttemptId) -> Worker:
    return replace(worker, claims={each: claim for each, claim in worker.claims.items() if each != attempt})


def a_small_task(random: Random, number: int) -> Job:
    kind = random.choice(["gpu", "gpu", "cpu"])
    return job(
        f"s{number}",
        device=gpus(random.choice([1, 1, 2, 3])) if kind == "gpu" else None,
        cpu=random.choice([0.5, 1, 2, 3]),
        memory=random.choice([GIB, 4 * GIB, 7 * GIB]),
        order=number + 1,
        submitted_at=number,
    )


class Stream:
    """Workers full of small tasks. More of them come at every step, and more than can run."""

    def __init__(self, random: Random, workers: int) -> None:
        self.random = random
        self.fleet = {f"w{number}": host(f"w{number}", gpus=8) for number in range(workers)}
        self.waiting: dict[str, Job] = {}
        self.number = 0
        while len(self.waiting) < 5 * workers:
            self.step(0.0)

    def step(self, now: float) -> None:
        """A few more small tasks come, a cycle places what it can, and that runs."""
        for _ in range(self.random.randrange(1, 8)):
            small = a_small_task(self.random, self.number)
            self.waiting[small.id] = small
            self.number += 1
        jobs = list(self.waiting.values())
        for each in cycle(self.fleet.values(), *jobs, now=now).assignments:
            asked = self.waiting.pop(each.task.job)
            self.fleet[each.worker] = with_claim(self.fleet[each.worker], each.task, asked, each.gpus)

    def end(self, worker: str, attempt: AttemptId) -> None:
        self.fleet[worker] = without(self.fleet[worker], attempt)

    def running(self) -> list[tuple[str, AttemptId]]:
        """The attempts with their workers, the oldest task first."""
        found = [(name, each) for name, worker in self.fleet.items() for each in worker.claims]
        return sorted(found, key=lambda pair: int(pair[1].task.job.removeprefix("s")))


LARGE = st.builds(
    lambda count, cpu, memory: large(device=gpus(count), cpu=cpu, memory=memory * GIB),
    st.integers(4, 8),
    st.sampled_from([1, 5, 9, 16]),
    st.sampled_from([1, 30, 64]),
)


@settings(max_examples=40)
@given(LARGE, st.randoms(use_true_random=True))
def test_it_starts_at_the_latest_when_those_have_ended_that_ran_when_it_reserved(
    asked: Job, random: Random
) -> None:
    stream = Stream(random, 1)
    stream.waiting[asked.id] = asked
    ahead = [attempt for _, attempt in stream.running()]
    random.shuffle(ahead)
    while True:
        stream.step(LONG)
        if asked.id not in stream.waiting:
            return
        assert ahead
        stream.end("w0", ahead.pop())


@settings(max_examples=10)
@given(LARGE, st.integers(2, 4), st.randoms(use_true_random=True))
def test_no_stream_of_small_tasks_starves_it_on_several_workers(
    asked: Job, workers: int, random: Random
) -> None:
    stream = Stream(random, workers)
    stream.waiting[asked.id] = asked
    for _ in range(100 * workers):
        stream.step(LONG)
        if asked.id not in stream.waiting:
            return
        oldest = stream.running()[: 4 * workers]
        stream.end(*random.choice(oldest))
    pytest.fail("it never started")
