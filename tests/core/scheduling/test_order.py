"""Who goes first, and whose deadline has passed."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core.ids import JobId, TaskId, Token, WorkerId
from iris_cli.core.model.job import Job, Priority
from iris_cli.core.model.task import Attempt, Task, TaskState
from iris_cli.core.scheduling import order
from tests.support.fleet import cycle, gang, host, job, kinds, pending, placed, tpu_slice, workers_of
from tests.support.phases import ENDED

ONE_CORE = [host("w", cpu=1)]


def first_of(*jobs: Job) -> str:
    """The job that gets the only core."""
    (only,) = cycle(ONE_CORE, *jobs).assignments
    return only.task.job


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        (job("b", priority=Priority.HIGH, order=9), job("a", order=1)),
        (job("b", order=9), job("a", priority=Priority.LOW, order=1)),
        (job("a/b", order=9), job("c", order=1)),
        (job("a/b/c", order=9), job("a/b", order=1)),
        (job("b", order=1), job("a", order=2)),
        (job("a/y", order=2), job("a/x", order=3)),
        (job("b", submitted_at=1.0), job("a", submitted_at=2.0)),
        (job("b", order=1, submitted_at=7.0), job("a", order=2, submitted_at=5.0)),
        (job("a"), job("b")),
    ],
    ids=[
        "high before normal",
        "normal before low",
        "a child before roots",
        "the deeper child before the other",
        "the older job",
        "the older of two children",
        "the older job by the clock where the log says nothing",
        "a clock that stepped back changes nothing",
        "the name decides at last",
    ],
)
def test_the_queue_has_a_total_order(winner: Job, loser: Job) -> None:
    assert first_of(loser, winner) == winner.id == first_of(winner, loser)


def test_tasks_go_by_index_not_by_text() -> None:
    result = cycle([host("w", cpu=11)], job("many", replicas=12))
    assert [each.task.index for each in result.assignments] == list(range(11))
    assert list(result.waiting) == [TaskId(JobId("many"), 11)]


def test_gangs_and_single_tasks_compete_in_one_order() -> None:
    slices = tpu_slice("a")
    late_gang = gang("late", cpu=112, order=2)
    assert workers_of(cycle(slices, job("early", cpu=1, order=1), late_gang), "late") == []
    assert workers_of(cycle(slices, job("early", cpu=1, order=3), late_gang), "early") == []


def test_a_bounced_gang_keeps_its_place_by_its_first_submission() -> None:
    bounced, newer = gang("bounced", order=1, rounds=1, settled_rounds=1), gang("newer", order=2)
    assert workers_of(cycle(tpu_slice("a"), newer, bounced), "bounced") == ["a-0", "a-1", "a-2", "a-3"]


@pytest.mark.parametrize("elapsed", [10.001, 1e6])
def test_a_task_past_its_deadline_ends_even_if_it_would_fit_now(elapsed: float) -> None:
    late = job("late", scheduling_timeout=10.0, submitted_at=100.0, replicas=2)
    result = cycle(ONE_CORE, late, now=100.0 + elapsed)
    assert result.timed_out_tasks == (TaskId(JobId("late"), 0), TaskId(JobId("late"), 1))
    assert (result.assignments, dict(result.waiting)) == ((), {})


@pytest.mark.parametrize(
    ("now", "fields"),
    [
        (110.0, {"scheduling_timeout": 10.0}),
        (1e9, {"scheduling_timeout": 0.0}),
        (50.0, {"scheduling_timeout": 10.0}),
    ],
    ids=["exactly at the deadline", "zero means never", "a clock that stepped back"],
)
def test_a_task_within_its_deadline_is_placed(now: float, fields: dict[str, Any]) -> None:
    result = cycle(ONE_CORE, job("j", submitted_at=100.0, **fields), now=now)
    assert placed(result) == {"j/task-0": "w"}


def tried(task: Task) -> Task:
    """The task with one attempt behind it."""
    attempt = Attempt(number=0, worker=WorkerId("w"), token=Token("0" * 32), phase=ENDED)
    return Task(id=task.id, attempts=(attempt,))


def test_a_task_of_an_unknown_job_is_invalid_and_blocks_no_other_job() -> None:
    orphan = pending([job("orphan")])
    result = cycle(ONE_CORE, job("j"), tasks=[*orphan, *pending([job("j")])])
    assert placed(result) == {"j/task-0": "w"}
    assert kinds(result, "orphan", 0) == ["invalid"]


def test_only_pending_tasks_are_placed_and_each_once() -> None:
    two = job("two", replicas=2)
    first, second = pending([two])
    running = Task(id=second.id, state=TaskState.RUNNING)
    result = cycle([host("w")], two, tasks=[first, running, first])
    assert [each.task for each in result.assignments] == [first.id]


def test_tasks_that_come_in_the_wrong_order_are_sorted_once_for_their_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sort, sorted_so_far = order._sort_by_index, []

    def counting(tasks: list[Task]) -> list[Task]:
        sorted_so_far.append(tasks[0].id.job)
        return sort(tasks)

    monkeypatch.setattr(order, "_sort_by_index", counting)
    jobs = [job("a", replicas=50), job("b", replicas=50)]
    result = cycle(ONE_CORE, *jobs, tasks=reversed(pending(jobs)))
    assert sorted_so_far == ["b", "a"]
    assert placed(result) == {"a/task-0": "w"}
