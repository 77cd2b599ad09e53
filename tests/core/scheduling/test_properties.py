"""What holds of every cycle, whatever the fleet and the queue are."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.core.constraints import Constraint, ConstraintOp
from iris_cli.core.ids import JobId, TaskId
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.worker import Worker, WorkerCondition
from iris_cli.core.resources import device_compatible
from iris_cli.core.scheduling import Change, ChangeKind, SchedulingResult
from tests.support.fleet import cycle, host, pending, tpu_slice
from tests.support.literal_reasons import kinds_of, reasons_of
from tests.support.literal_scheduler import LiteralScheduler, satisfies
from tests.support.random_fleet import (
    NOW,
    Dice,
    Situation,
    a_fleet,
    a_job,
    a_situation,
    dice,
    malformed,
    situations,
)

fleets_and_jobs = dice.map(lambda thrown: (a_fleet(thrown), a_job(thrown, 0)))

FEW, MANY, VERY_MANY = (
    settings(max_examples=30),
    settings(max_examples=40),
    settings(max_examples=8_000),
)


def workers_by_job(result: SchedulingResult) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in result.assignments:
        found.setdefault(each.task.job, []).append(each.worker)
    return found


def assert_that_the_rules_read_literally_decide_the_same(situation: Situation) -> None:
    literal = LiteralScheduler(
        situation.fleet, NOW, situation.gang_reserve_after, 300.0, list(situation.unconfirmed_stops)
    )
    literal.decide(situation.tasks, situation.known)
    result = situation.cycle()
    assert [(str(each.task), each.worker, each.gpus) for each in result.assignments] == literal.placements
    assert {str(key): names for key, names in result.reservations.items()} == literal.reservations
    assert [str(task) for task in result.timed_out_tasks] == literal.timed_out
    assert kinds_of(result.waiting) == reasons_of(literal)


@MANY
@given(situations)
def test_the_rules_read_literally_decide_the_same(situation: Situation) -> None:
    assert_that_the_rules_read_literally_decide_the_same(situation)


@pytest.mark.soak
@VERY_MANY
@given(situations)
def test_the_rules_read_literally_decide_the_same_very_often(situation: Situation) -> None:
    assert_that_the_rules_read_literally_decide_the_same(situation)


@FEW
@given(situations, st.randoms(use_true_random=True))
def test_the_order_of_the_input_changes_nothing(situation: Situation, random: Random) -> None:
    first = situation.cycle()
    shuffled = dataclasses.replace(situation, fleet=list(situation.fleet), tasks=list(situation.tasks))
    random.shuffle(shuffled.fleet)
    random.shuffle(shuffled.tasks)
    second = shuffled.cycle()
    assert first.assignments == second.assignments
    assert first.timed_out_tasks == second.timed_out_tasks
    assert list(first.waiting.items()) == list(second.waiting.items())
    assert first.reserved_for == second.reserved_for
    assert first.reservations == second.reservations
    assert first.notable_choices() == second.notable_choices()


def committed(situation: Situation, result: SchedulingResult) -> Iterator[tuple[str, int, int, bool, Any]]:
    """Worker, thousandths of a core, bytes, chips, GPUs: of what was live before, and of what was placed."""
    for worker in situation.fleet:
        for claim in worker.claims.values():
            yield worker.id, claim.cpu_millis, claim.memory, claim.chips, claim.gpus
    for each in result.assignments:
        asked = situation.known[each.task.job].resources
        yield each.worker, asked.cpu_millis, asked.memory, asked.device_type == "tpu", each.gpus


@FEW
@given(situations)
def test_no_worker_is_ever_over_committed(situation: Situation) -> None:
    result = situation.cycle()
    cpu, memory, tenants = Counter[str](), Counter[str](), Counter[str]()
    gpus: dict[str, list[int]] = {}
    for name, millis, size, chips, indexes in committed(situation, result):
        cpu[name] += millis
        memory[name] += size
        tenants[name] += chips
        gpus.setdefault(name, []).extend(indexes)
    for each in result.assignments:
        device = situation.known[each.task.job].resources.device
        assert len(each.gpus) == (device.count if device and device.kind == "gpu" else 0)
    taken = {each.worker for each in result.assignments}
    for worker in situation.fleet:
        if worker.id in taken:  # what was there before may be too much: workers shrink
            assert cpu[worker.id] <= worker.cpu_millis
            assert memory[worker.id] <= worker.memory
        assert tenants[worker.id] <= 1
        handed_out = gpus.get(worker.id, [])
        assert len(handed_out) == len(dict.fromkeys(handed_out))
        assert all(0 <= gpu < worker.gpus for gpu in handed_out)


@FEW
@given(situations)
def test_everyone_is_where_it_may_be(situation: Situation) -> None:
    workers = {each.id: each for each in situation.fleet}
    for each in situation.cycle().assignments:
        asked, worker = situation.known[each.task.job], workers[each.worker]
        assert worker.condition is WorkerCondition.HEALTHY
        assert not any((worker.draining, worker.quarantined, worker.unschedulable))
        assert not NOW < worker.cooldown_until <= NOW + 300
        assert worker.id not in situation.unconfirmed_stops
        assert all(satisfies(worker, constraint) for constraint in asked.constraints if constraint.required)
        taints = [key.removeprefix("taint:") for key in worker.attributes if key.startswith("taint:")]
        assert all(taint in asked.tolerations for taint in taints)
        assert device_compatible(asked.resources.device_type, str(worker.attributes["device-type"]))


@FEW
@given(situations)
def test_a_gang_is_placed_whole_on_exactly_its_groups_or_waits_whole(situation: Situation) -> None:
    workers = {str(each.id): each for each in situation.fleet}
    result = situation.cycle()
    placements = workers_by_job(result)
    for asked in situation.jobs:
        where = placements.get(asked.id, [])
        if asked.coscheduling is None or not where:
            continue
        assert asked.id not in result.waiting
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
            members = Counter(each.attributes.get(key) for each in situation.fleet)
            assert all(members[block[0]] == size for block in blocks)


@FEW
@given(situations)
def test_every_task_is_placed_waits_or_is_too_late_and_only_one_of_these(situation: Situation) -> None:
    result = situation.cycle()
    gangs = {each.id for each in situation.jobs if each.is_gang}
    seen = Counter(each.task for each in result.assignments) + Counter(result.timed_out_tasks)
    for task in {task.id: task for task in situation.tasks}.values():
        waits = (task.job if task.job in gangs else task.id) in result.waiting
        if task.state == "PENDING":
            assert seen[task.id] + waits == 1
        else:
            assert not seen[task.id]


@FEW
@given(situations)
def test_whatever_waits_has_its_reasons_in_order_and_can_be_explained(situation: Situation) -> None:
    waiting = situation.cycle().waiting
    for key, reasons in waiting.items():
        ranks = [reason.kind.rank for reason in reasons]
        assert ranks == sorted(dict.fromkeys(ranks))
        assert ranks
        explanation = waiting.explain(key)
        assert explanation.reasons == reasons
        assert all(near.lacking for near in explanation.near_misses)


def placements(fleet: list[Worker], asked: Job) -> int:
    """How many tasks of a job are placed that is alone, or the first."""
    return len(cycle(fleet, asked, now=NOW, backoff_max=300.0).assignments)


@FEW
@given(fleets_and_jobs, st.sampled_from([tpu_slice("new"), [host("new", region="us", rack="us")]]))
def test_one_more_free_worker_never_makes_the_first_job_unplaceable(
    drawn: tuple[list[Worker], Job], more: list[Worker]
) -> None:
    fleet, first = drawn
    assert placements([*fleet, *more], first) >= placements(fleet, first)


@FEW
@given(fleets_and_jobs)
def test_a_constraint_less_never_makes_the_first_job_unplaceable(drawn: tuple[list[Worker], Job]) -> None:
    fleet, first = drawn
    before = placements(fleet, first)
    for dropped in first.constraints:
        rest = tuple(each for each in first.constraints if each is not dropped)
        assert placements(fleet, replace(first, constraints=rest)) >= before


def with_change(situation: Situation, change: Change, job_id: JobId) -> Situation:
    """The situation after the change that was proposed, from nothing but its kind, subject and amount."""
    asked, subject, amount = situation.known[job_id], change.subject, change.amount
    resources, device = asked.resources, asked.resources.device
    again = 1 + max(each.order for each in situation.jobs)
    if change.kind in ("drop", "tolerate", "spread", "less_cpu", "less_memory", "fewer_gpus"):
        asked = replace(asked, order=again)  # only a job that is submitted again has other fields
    match change.kind:
        case "drop":
            kept = [each for each in asked.constraints if format_constraint(each) != subject]
            asked = replace(asked, constraints=tuple(kept))
        case "tolerate":
            asked = replace(asked, tolerations=(*asked.tolerations, subject))
        case "spread":
            asked = replace(asked, spread=True)
        case "priority":
            asked = replace(asked, priority=Priority(subject))
        case "less_cpu":
            asked = replace(asked, resources=replace(resources, cpu=amount / 1000))
        case "less_memory":
            asked = replace(asked, resources=replace(resources, memory=amount))
        case "fewer_gpus":
            assert device is not None
            asked = replace(asked, resources=replace(resources, device=replace(device, count=amount)))
        case "job_ends":
            return with_end_of_job(situation, subject)
        case "task_ends":
            return with_end_of(situation, lambda task: str(task) == subject)
        case "uncordon" | "completes":
            return with_worker(situation, subject, draining=False, quarantined=False, cooldown_until=0.0)
        case "recovers":
            well = WorkerCondition.HEALTHY
            return with_worker(situation, subject, condition=well, unschedulable=False, cooldown_until=0.0)
        case "rests":
            (rested,) = (each.cooldown_until for each in situation.fleet if each.id == subject)
            return dataclasses.replace(situation, now=rested)
    jobs = [asked if each.id == job_id else each for each in situation.jobs]
    return dataclasses.replace(situation, jobs=jobs)


def with_worker(situation: Situation, name: str, **fields: Any) -> Situation:
    fleet = [replace(each, **fields) if each.id == name else each for each in situation.fleet]
    return dataclasses.replace(situation, fleet=fleet)


def with_end_of(situation: Situation, over: Callable[[TaskId], bool]) -> Situation:
    """These tasks are not live any more."""
    fleet = [
        replace(
            each,
            claims={attempt: claim for attempt, claim in each.claims.items() if not over(attempt.task)},
        )
        for each in situation.fleet
    ]
    return dataclasses.replace(situation, fleet=fleet)


def with_end_of_job(situation: Situation, job: str) -> Situation:
    """Neither live nor pending, and nothing of it is still being stopped. Its child jobs end with it."""

    def ends(name: JobId | None) -> bool:
        return f"{name}/".startswith(f"{job}/")

    tasks = [task for task in situation.tasks if not ends(task.job)]
    stops = {worker: jobs for worker, jobs in situation.unconfirmed_stops.items() if not all(map(ends, jobs))}
    ended = with_end_of(situation, lambda task: ends(task.job))
    return dataclasses.replace(ended, tasks=tasks, unconfirmed_stops=stops)


def assert_that_the_single_change_does_what_it_promises(situation: Situation) -> list[str]:
    before, kinds = situation.cycle(), []
    for key in before.waiting:
        change = before.waiting.explain(key).change
        if change is not None:
            after = with_change(situation, change, job_of(key)).cycle()
            assert count_of(after, key) > count_of(before, key), (str(key), change)
            kinds.append(change.kind.value)
    return kinds


def count_of(result: SchedulingResult, key: TaskId | JobId) -> int:
    return sum(each.task.job == job_of(key) for each in result.assignments)


@FEW
@given(situations)
def test_the_single_change_does_what_it_promises(situation: Situation) -> None:
    """To every job that waits in a queue of any length."""
    assert_that_the_single_change_does_what_it_promises(situation)


@pytest.mark.soak
@VERY_MANY
@given(situations)
def test_the_single_change_does_what_it_promises_very_often(situation: Situation) -> None:
    assert_that_the_single_change_does_what_it_promises(situation)


_PROPOSING = (237, 1378, 1225, 1256, 41, 473, 762, 534, 1320, 1226, 208)
"""Seeds of situations for which all kinds of changes are proposed. If they no longer are, others are found."""


def test_every_kind_of_change_is_proposed_for_something() -> None:
    seen = set[str]()
    for seed in (*_PROPOSING, *range(2_000)):
        if seen == set(ChangeKind):
            break
        thrown = Dice(Random(seed).randbytes(300))
        seen.update(assert_that_the_single_change_does_what_it_promises(a_situation(thrown)))
    assert seen == set(ChangeKind)


@FEW
@given(situations, st.data())
def test_who_comes_last_changes_nothing_for_those_before(situation: Situation, data: st.DataObject) -> None:
    last = replace(a_job(data.draw(dice), 99), id=JobId("zz"), order=99)
    ahead = {each.id for each in situation.jobs if each.priority.rank <= last.priority.rank}
    tasks = [task for task in situation.tasks if task.job in ahead]
    without = dataclasses.replace(situation, tasks=tasks).cycle()
    after = dataclasses.replace(
        situation, jobs=[*situation.jobs, last], tasks=[*tasks, *pending([last])]
    ).cycle()
    assert after.assignments[: len(without.assignments)] == without.assignments


ODD: list[Constraint] = [
    malformed("region", ConstraintOp.LT, "us"),
    malformed("region", ConstraintOp.EQ, None),
    malformed("region", ConstraintOp.IN, None),
    malformed("", ConstraintOp.GE, "x"),
    malformed("pool", ConstraintOp.GT, None),
    Constraint.of("region", ConstraintOp.GT, 10**400),
    Constraint.of("pool", ConstraintOp.IN, values=["y", 1.5, -1]),
]


@FEW
@given(situations, st.data(), st.sampled_from(ODD))
def test_an_odd_constraint_waits_alone(situation: Situation, data: st.DataObject, odd: Constraint) -> None:
    """Whatever is wrong with a constraint, and wherever its job stands in the queue."""
    asked = a_job(data.draw(dice), 0)
    asked = replace(asked, id=JobId("odd"), constraints=(*asked.constraints, odd))
    with_it = dataclasses.replace(
        situation, jobs=[*situation.jobs, asked], tasks=[*pending([asked]), *situation.tasks]
    ).cycle()
    without = situation.cycle()
    assert with_it.assignments == without.assignments
    assert with_it.reservations == without.reservations
    assert [key for key in with_it.waiting if job_of(key) != "odd"] == list(without.waiting)
    for key in with_it.waiting:
        assert with_it.waiting.explain(key).reasons == with_it.waiting[key] != ()


def job_of(key: TaskId | JobId) -> JobId:
    return key.job if isinstance(key, TaskId) else key
