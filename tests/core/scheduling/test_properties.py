"""What holds of every cycle, whatever the fleet and the queue are."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.job import Job
from iris_cli.core.resources import device_compatible
from iris_cli.core.scheduling import SchedulingResult
from iris_cli.core.worker import Worker
from tests.support.fleet import cycle, host, pending, tpu_slice
from tests.support.literal_scheduler import LiteralScheduler
from tests.support.random_fleet import fleets, jobs, queues

NOW = 1000.0
unhurried = settings(deadline=None)  # a busy machine is no failure


def workers_by_job(result: SchedulingResult) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in result.assignments:
        found.setdefault(each.task.job, []).append(each.worker)
    return found


@settings(unhurried, max_examples=300)
@given(fleets(), queues())
def test_the_rules_read_literally_decide_the_same(fleet: list[Worker], queue: list[Job]) -> None:
    literal = LiteralScheduler(fleet, NOW)
    literal.place(queue)
    result = cycle(fleet, *queue, now=NOW)
    assert [(str(each.task), each.worker, each.gpus) for each in result.assignments] == literal.placements
    assert result.reservations == literal.reservations


@unhurried
@given(fleets(), queues(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(
    fleet: list[Worker], queue: list[Job], random: Random
) -> None:
    tasks = pending(queue)
    first = cycle(fleet, *queue, tasks=tasks, now=NOW)
    shuffled_fleet, shuffled_tasks = list(fleet), list(tasks)
    random.shuffle(shuffled_fleet)
    random.shuffle(shuffled_tasks)
    second = cycle(shuffled_fleet, *queue, tasks=shuffled_tasks, now=NOW)
    assert first == second
    assert list(first.waiting) == list(second.waiting)


@unhurried
@given(fleets(), queues())
def test_no_worker_is_ever_over_committed(fleet: list[Worker], queue: list[Job]) -> None:
    by_id = {each.id: each for each in queue}
    cpu, memory, tenants = Counter[str](), Counter[str](), Counter[str]()
    gpus: dict[str, list[int]] = {}
    for worker in fleet:
        for claim in worker.claims.values():
            cpu[worker.id] += claim.cpu_millis
            memory[worker.id] += claim.memory
            tenants[worker.id] += claim.chips
    for each in cycle(fleet, *queue, now=NOW).assignments:
        resources = by_id[each.task.job].resources
        cpu[each.worker] += resources.cpu_millis
        memory[each.worker] += resources.memory
        tenants[each.worker] += resources.device_type == "tpu"
        gpus.setdefault(each.worker, []).extend(each.gpus)
        wanted = resources.device.count if resources.device and resources.device.kind == "gpu" else 0
        assert len(each.gpus) == wanted
    for worker in fleet:
        assert cpu[worker.id] <= worker.cpu_millis
        assert memory[worker.id] <= worker.memory
        assert tenants[worker.id] <= 1
        handed_out = gpus.get(worker.id, [])
        assert len(handed_out) == len(dict.fromkeys(handed_out))
        assert all(0 <= gpu < worker.gpus for gpu in handed_out)


@unhurried
@given(fleets(), queues())
def test_everyone_is_where_it_may_be(fleet: list[Worker], queue: list[Job]) -> None:
    by_id, workers = {each.id: each for each in queue}, {each.id: each for each in fleet}
    for each in cycle(fleet, *queue, now=NOW).assignments:
        asked, worker = by_id[each.task.job], workers[each.worker]
        assert not worker.draining
        assert all(
            constraint.matches(worker.attributes) for constraint in asked.constraints if constraint.required
        )
        assert "taint:maintenance" not in worker.attributes or "maintenance" in asked.tolerations
        assert device_compatible(asked.resources.device_type, str(worker.attributes["device-type"]))


@unhurried
@given(fleets(), queues())
def test_a_gang_is_placed_whole_on_exactly_its_groups_or_waits_whole(
    fleet: list[Worker], queue: list[Job]
) -> None:
    workers = {str(each.id): each for each in fleet}
    result = cycle(fleet, *queue, now=NOW)
    placements = workers_by_job(result)
    for asked in queue:
        where = placements.get(asked.id, [])
        if asked.coscheduling is None:
            continue
        assert (asked.id in result.waiting) is not bool(where)
        if not where:
            continue
        key = asked.coscheduling.group_by
        groups = [workers[worker].attributes[key] for worker in where]
        size = asked.replicas // asked.slices
        blocks = [groups[start : start + size] for start in range(0, asked.replicas, size)]
        assert len(where) == len(dict.fromkeys(where)) == asked.replicas
        assert len(dict.fromkeys(groups)) == asked.slices
        assert all(len(dict.fromkeys(block)) == 1 for block in blocks)
        if asked.resources.device_type == "tpu":
            numbers = [workers[worker].attributes["tpu-worker-id"].value for worker in where]
            assert numbers == list(range(size)) * asked.slices
            assert all(
                sum(each.attributes.get(key) == block[0] for each in fleet) == size for block in blocks
            )


@unhurried
@given(fleets(), queues())
def test_every_task_is_placed_waits_or_is_too_late_and_only_one_of_these(
    fleet: list[Worker], queue: list[Job]
) -> None:
    result = cycle(fleet, *queue, now=NOW)
    gangs = {each.id for each in queue if each.is_gang}
    seen = Counter(each.task for each in result.assignments) + Counter(result.timed_out_tasks)
    for task in pending(queue):
        waits = (task.job if task.job in gangs else task.id) in result.waiting
        assert seen[task.id] + waits == 1


@unhurried
@given(fleets(), queues())
def test_whatever_waits_has_its_reasons_in_order_and_can_be_explained(
    fleet: list[Worker], queue: list[Job]
) -> None:
    waiting = cycle(fleet, *queue, now=NOW).waiting
    for key, reasons in waiting.items():
        ranks = [reason.kind.rank for reason in reasons]
        assert ranks == sorted(dict.fromkeys(ranks))
        assert ranks
        explanation = waiting.explain(key)
        assert explanation.reasons == reasons
        assert all(near.lacking for near in explanation.near_misses)


@unhurried
@given(fleets(), jobs(0), st.booleans())
def test_one_more_free_worker_never_makes_the_first_job_unplaceable(
    fleet: list[Worker], first: Job, is_slice: bool
) -> None:
    before = cycle(fleet, first, now=NOW)
    more = tpu_slice("new") if is_slice else [host("new", region="us", rack="us")]
    after = cycle([*fleet, *more], first, now=NOW)
    assert len(after.assignments) >= len(before.assignments)


def with_change(change: str, fleet: list[Worker], asked: Job) -> tuple[list[Worker], Job]:
    """The fleet and the job after the change that was proposed."""
    if dropped := re.match(r"drop (.+): ", change):
        rest = [each for each in asked.constraints if format_constraint(each) != dropped[1]]
        return fleet, replace(asked, constraints=tuple(rest))
    if tolerated := re.match(r"tolerate (.+): ", change):
        return fleet, replace(asked, tolerations=(*asked.tolerations, tolerated[1]))
    if ended := re.search(r"frees when job (.+) ends$", change):
        return [without(worker, ended[1]) for worker in fleet], asked
    mended = re.search(r"after `iris worker uncordon (.+)`$", change)
    assert mended, change
    return [replace(each, draining=False) if each.id == mended[1] else each for each in fleet], asked


def without(worker: Worker, name: str) -> Worker:
    claims = {attempt: claim for attempt, claim in worker.claims.items() if attempt.task.job != name}
    return replace(worker, claims=claims)


@unhurried
@given(fleets(), jobs(0))
def test_the_single_change_does_what_it_promises(fleet: list[Worker], asked: Job) -> None:
    before = cycle(fleet, asked, now=NOW)
    for key in before.waiting:
        change = before.waiting.explain(key).change
        if change:
            changed_fleet, changed_job = with_change(change, fleet, asked)
            after = cycle(changed_fleet, changed_job, now=NOW)
            assert len(after.assignments) > len(before.assignments)


@unhurried
@given(fleets(), queues(), jobs(99))
def test_who_comes_last_changes_nothing_for_those_before(
    fleet: list[Worker], queue: list[Job], last: Job
) -> None:
    ahead = [each for each in queue if each.priority.rank <= last.priority.rank]
    without = cycle(fleet, *ahead, now=NOW).assignments
    assert cycle(fleet, *ahead, last, now=NOW).assignments[: len(without)] == without
