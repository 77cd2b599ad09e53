"""What a cycle costs, counted and not timed: calls of functions, and constraints that are evaluated.

Work is done for each signature, each value of an attribute and each worker; a task more costs a few calls. Counts
are the same on any machine under any load.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from iris_cli.core.constraints import AttributeValue, Constraint
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job
from iris_cli.core.model.worker import Worker
from iris_cli.core.resources import Device
from iris_cli.core.scheduling import find_assignments, plan
from tests.support.fleet import GIB, busy, gang, host, job, pending, tpu_slice, training

WANTED = ((), ("region=r1",), ("region!=r1", "~pool=p0"), ("pool in p0,p1",), ("rack>=2",))


def fleet(slices: int) -> list[Worker]:
    found = []
    for n in range(slices):
        found += tpu_slice(f"s{n:04}", region=f"r{n % 2}", pool=f"p{n % 3}", rack=n % 5)
    return found


def full(slices: int) -> list[Worker]:
    return [training(worker, by=worker.id.rpartition("-")[0]) for worker in fleet(slices)]


def full_of_one(slices: int) -> list[Worker]:
    return [training(worker) for worker in fleet(slices)]


def singles(count: int, cpu: float = 1) -> list[Job]:
    """Twenty signatures that share their constraints."""
    return [
        job(f"j{n}", *WANTED[n % len(WANTED)], cpu=cpu + n // len(WANTED) % 4, order=n) for n in range(count)
    ]


def gangs(count: int) -> list[Job]:
    return [gang(f"g{n}", order=n) for n in range(count)]


def one_job(tasks: int) -> list[Job]:
    return [job("wide", replicas=tasks)]


def waiting_singles(count: int) -> list[Job]:
    return singles(count, cpu=1000)


def calls(act: Callable[[], object]) -> int:
    """How many functions are called, built-in ones included.

    Counted until two counts are equal: by then everything is there that is made only once.
    """
    counts = [_calls(act), _calls(act)]
    while counts[-1] != counts[-2]:
        assert len(counts) < 10
        counts.append(_calls(act))
    return counts[-1]


def _calls(act: Callable[[], object]) -> int:
    count, collects = 0, gc.isenabled()

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # a library may have functions that the collector calls
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count


def of_a_cycle(workers: Sequence[Worker], queue: Sequence[Job]) -> int:
    known, tasks = {each.id: each for each in queue}, pending(queue)
    return calls(lambda: find_assignments(tasks, workers, known.get, 300.0))


def of_a_plan(workers: Sequence[Worker], queue: Sequence[Job]) -> int:
    cluster = Cluster(
        jobs={each.id: each for each in queue},
        tasks={each.id: each for each in pending(queue)},
        workers={each.id: each for each in workers},
    )
    return calls(lambda: plan(cluster, 300.0))


@pytest.mark.parametrize(
    ("queue", "of_a_cycle_most", "of_a_plan_most"),
    [
        pytest.param(one_job, 8, 8, id="a task more of a job that fits"),
        pytest.param(singles, 24, 26, id="a single task that fits"),
        pytest.param(waiting_singles, 14, 18, id="a single task that waits"),
        pytest.param(gangs, 21, 23, id="a gang that waits"),
    ],
)
def test_twice_as_many_tasks_cost_at_most_twice_as_much_at_a_few_calls_each(
    queue: Callable[[int], list[Job]], of_a_cycle_most: int, of_a_plan_most: int
) -> None:
    hosts = fleet(10)
    for measure, most in ((of_a_cycle, of_a_cycle_most), (of_a_plan, of_a_plan_most)):
        few, twice, four = (measure(hosts, queue(count)) for count in (250, 500, 1000))
        assert (four - twice) / 500 <= 1.05 * (twice - few) / 250
        assert (twice - few) / 250 <= most


@pytest.mark.parametrize("workers", [fleet, full])
def test_twice_as_many_workers_cost_at_most_twice_as_much(workers: Callable[[int], list[Worker]]) -> None:
    queue = [*singles(100), *gangs(20)]
    few, twice, four = (of_a_cycle(workers(slices), queue) for slices in (100, 200, 400))
    assert four - twice <= 1.05 * 2 * (twice - few)


def with_reasons_of_those_that_keep_slices(workers: Sequence[Worker]) -> int:
    queue = gangs(len(workers) // 8)
    known, tasks = {each.id: each for each in queue}, pending(queue)

    def act() -> None:
        result = find_assignments(tasks, workers, known.get, 1000.0)
        assert len(result.reservations) == len(dict(result.waiting)) == len(queue)

    return calls(act)


@pytest.mark.parametrize("workers", [full, full_of_one])
def test_twice_as_many_gangs_that_keep_twice_as_many_slices_cost_twice_as_much_to_tell_about(
    workers: Callable[[int], list[Worker]],
) -> None:
    few, twice, four = (with_reasons_of_those_that_keep_slices(workers(slices)) for slices in (40, 80, 160))
    assert four - twice <= 1.05 * 2 * (twice - few)


def large_tasks_on(count: int) -> int:
    """Calls of a cycle over full hosts, of which each is reserved for one job, and twice as many jobs wait."""
    hosts = [host(f"g{n}", gpus=8) for n in range(count)]
    for gpu in range(4):
        hosts = [busy(each, f"old-{n}-{gpu}", cpu=1 + n % 3, gpus=(gpu,)) for n, each in enumerate(hosts)]
    queue = [job(f"j{n}", device=Device("gpu", count=8), order=n) for n in range(2 * count)]
    known, tasks = {each.id: each for each in queue}, pending(queue)

    def act() -> None:
        assert len(find_assignments(tasks, hosts, known.get, 1000.0).reservations) == count

    return calls(act)


def test_twice_as_many_large_tasks_that_reserve_twice_as_many_workers_cost_twice_as_much() -> None:
    few, twice, four = (large_tasks_on(count) for count in (40, 80, 160))
    assert four - twice <= 1.05 * 2 * (twice - few)
    assert (twice - few) / 40 <= 150


def large_tasks_with_needs_of_their_own(jobs: int) -> int:
    """Calls of a cycle over 160 hosts that differ in what runs on them, as the jobs differ in what they need."""
    hosts = [host(f"g{n:03}", gpus=8) for n in range(160)]
    for gpu in range(4):
        hosts = [
            busy(each, f"old-{n}-{gpu}", memory=(1 + n * (gpu + 1) % 13) * GIB, gpus=(gpu,))
            for n, each in enumerate(hosts)
        ]
    queue = [
        job(f"j{n}", device=Device("gpu", count=8), cpu=8, memory=(n + 1) * GIB // 2, order=n)
        for n in range(jobs)
    ]
    known, tasks = {each.id: each for each in queue}, pending(queue)

    def act() -> None:
        assert len(find_assignments(tasks, hosts, known.get, 1000.0).reservations) == jobs

    return calls(act)


def test_a_large_task_with_needs_of_its_own_does_not_look_at_the_attempts_of_every_worker() -> None:
    few, twice = map(large_tasks_with_needs_of_their_own, (40, 80))
    assert (twice - few) / 40 <= 2 * 160


def evaluations(monkeypatch: pytest.MonkeyPatch, workers: Sequence[Worker], queue: Sequence[Job]) -> int:
    """How often a constraint is held against attributes."""
    count = 0
    matches = Constraint.matches

    def counting(constraint: Constraint, attributes: dict[str, AttributeValue]) -> bool:
        nonlocal count
        count += 1
        return matches(constraint, attributes)

    with monkeypatch.context() as patch:
        patch.setattr(Constraint, "matches", counting)
        known = {each.id: each for each in queue}
        find_assignments(pending(queue), workers, known.get, 300.0)
    return count


def test_constraints_are_evaluated_once_for_each_value_whatever_the_tasks_and_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    distinct = len({constraint for wanted in WANTED for constraint in wanted})
    few = evaluations(monkeypatch, fleet(10), singles(10))
    assert distinct < few <= distinct * (5 + 1)  # five racks at most, and having none
    assert evaluations(monkeypatch, fleet(10), singles(1000)) == few
    assert evaluations(monkeypatch, fleet(200), singles(10)) == few


def test_a_cycle_leaves_the_interpreter_as_it_was() -> None:
    seen: list[bool] = []
    worker = fleet(1)

    def get_job(_name: str) -> Job | None:
        seen.append(gc.isenabled())
        raise LookupError

    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with pytest.raises(LookupError):
                find_assignments(pending(one_job(1)), worker, get_job, 0.0)
            assert gc.isenabled() is enabled
        finally:
            gc.enable()
    assert seen == [False, False]
