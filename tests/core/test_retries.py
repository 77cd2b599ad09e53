"""What happened, what it counts against, and what then follows."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core import EndReason, JobState, TaskState
from iris_cli.core.model.limits import Limits
from tests.support.lab import Lab

FAILED_BY_THE_PROGRAM = [
    ("exited 1", EndReason.USER_ERROR),
    ("signal 139", EndReason.SIGNAL),
    ("oom", EndReason.OOM),
    ("nostart setup", EndReason.SETUP_FAILED),
]


def single(**budget: Any) -> Lab:
    return Lab().worker("w").job("train", **budget).schedule()


def gang(**budget: Any) -> Lab:
    return Lab().slice("a").job("train", tpu="v4-16", **budget).schedule()


def go_again(lab: Lab) -> Lab:
    lab.reports(*(f"{name} stopped" for name, attempt in lab.cluster.live_attempts() if attempt.stop))
    return lab.advance("1h").schedule()


# Single tasks


@pytest.mark.parametrize(("said", "reason"), FAILED_BY_THE_PROGRAM)
def test_a_task_that_fails_is_tried_as_often_again_as_it_may_be(said: str, reason: EndReason) -> None:
    lab = single(max_retries_failure=2)
    for attempts in (1, 2, 3):
        assert len(lab.task("train").attempts) == attempts
        lab.reports(f"train/* {said}").schedule()
    assert lab.task("train").state is TaskState.FAILED
    assert [attempt.end.reason for attempt in lab.task("train").attempts if attempt.end] == [reason] * 3
    assert (lab.state_of("train"), lab.the_job("train").end) != (JobState.FAILED, None)


@pytest.mark.parametrize(("said", "reason"), FAILED_BY_THE_PROGRAM)
def test_without_a_budget_the_first_failure_is_final(said: str, reason: EndReason) -> None:
    lab = single().reports(f"train/* {said}")
    end = lab.the_job("train").end
    assert lab.state_of("train") is JobState.FAILED
    assert end is not None
    assert (end.reason, str(end.trigger)) == (reason, "train/task-0")


def test_a_lost_host_counts_against_its_own_budget() -> None:
    lab = single(max_retries_preemption=1).reports("train/* lost").schedule()
    assert lab.task("train").state is TaskState.ASSIGNED
    lab.reports("train/* lost")
    assert lab.task("train").state is TaskState.WORKER_FAILED
    assert (lab.task("train").failures, lab.task("train").preemptions) == (0, 1)


def test_the_default_preemption_budget_is_100() -> None:
    lab = single()
    for _ in range(100):
        lab.reports("train/* lost").schedule()
    assert lab.task("train").state is TaskState.ASSIGNED
    assert lab.reports("train/* lost").task("train").state is TaskState.WORKER_FAILED


def test_not_reached_counts_against_nothing() -> None:
    lab = single(max_retries_preemption=0)
    for _ in range(50):
        lab.not_sent("train/*").schedule()
    task = lab.task("train")
    assert (task.state, task.failures, task.preemptions, task.refusals) == (TaskState.ASSIGNED, 0, 0, 0)


def test_ten_refusals_in_a_row_end_a_task() -> None:
    lab = single(max_retries_failure=99)
    for _ in range(9):
        lab.reports("train/* nostart chips").uncordon("w").schedule()
    assert lab.task("train").state is TaskState.ASSIGNED
    lab.reports("train/* nostart chips")
    end = lab.task("train").end
    assert end is not None
    assert (lab.task("train").state, end.reason) == (TaskState.FAILED, EndReason.DISPATCH_FAILED)
    assert lab.state_of("train") is JobState.FAILED


def test_a_start_resets_the_refusals_of_a_task_and_an_acknowledgement_does_not() -> None:
    lab = single(max_retries_preemption=9)
    for _ in range(4):
        lab.reports("train/* preparing").reports("train/* nostart disk").uncordon("w").schedule()
    assert lab.task("train").refusals == 4
    assert lab.reports("train/* running").task("train").refusals == 0
    assert lab.the_worker("w").refusals == 0


# Gangs: per round, whichever rank it was


@pytest.mark.parametrize(("said", "reason"), FAILED_BY_THE_PROGRAM)
def test_a_failed_round_is_charged_once_to_the_job(said: str, reason: EndReason) -> None:
    lab = gang(max_retries_failure=1).reports(f"train/* {said}")
    job = lab.the_job("train")
    assert (job.failed_rounds, job.preempted_rounds, job.refused_rounds) == (1, 0, 0)
    assert {task.state for task in lab.cluster.tasks.values()} == {TaskState.PENDING}
    assert {task.failures for task in lab.cluster.tasks.values()} == {0}
    go_again(lab).reports(f"train/task-1 {said}")
    end = lab.the_job("train").end
    assert lab.state_of("train") is JobState.FAILED
    assert end is not None
    assert (end.reason, str(end.trigger)) == (reason, "train/task-1")


@pytest.mark.parametrize("said", ["lost", "cancelled"])
def test_a_round_that_lost_a_host_is_charged_as_that(said: str) -> None:
    lab = gang(max_retries_preemption=1).reports("train/* running").reports(f"train/task-1 {said}")
    job = lab.the_job("train")
    assert (job.failed_rounds, job.preempted_rounds) == (0, 1)
    assert {task.preemptions for task in lab.cluster.tasks.values()} == {0}
    assert lab.state_of("train") is JobState.RUNNING
    go_again(lab).reports("train/* running").reports(f"train/task-0 {said}")
    assert lab.task("train", 0).state is TaskState.WORKER_FAILED
    assert lab.state_of("train") is JobState.FAILED


def test_a_round_that_failed_in_dispatch_ends_at_once_even_if_a_worker_is_silent() -> None:
    lab = Lab().slice("a", "v4-32").job("train", tpu="v4-32").schedule()
    lab.silent("a-2").not_sent("train/task-1")
    assert lab.the_job("train").settled_rounds == 1
    assert {task.state for task in lab.cluster.tasks.values()} == {TaskState.PENDING}
    assert [attempt.state.value for _, attempt in lab.cluster.live_attempts()] == ["STOPPING"] * 3


def test_rounds_that_never_began_are_charged_to_nobody() -> None:
    lab = gang(max_retries_preemption=0)
    for _ in range(15):
        go_again(lab.reports("train/task-0 prepared").not_sent("train/task-1"))
    job = lab.the_job("train")
    assert (job.failed_rounds, job.preempted_rounds, job.refused_rounds, job.rounds) == (0, 0, 0, 16)


def test_ten_refused_rounds_in_a_row_end_a_gang() -> None:
    lab = gang()
    for refused in range(9):
        assert lab.the_job("train").refused_rounds == refused
        lab.reports("train/* nostart disk").uncordon("a-0").uncordon("a-1").schedule()
    lab.reports("train/task-0 prepared", "train/task-1 nostart disk")
    assert lab.state_of("train") is JobState.FAILED
    assert {task.refusals for task in lab.cluster.tasks.values()} == {0}
    assert [lab.task("train", index).state for index in (0, 1)] == [TaskState.WORKER_FAILED, TaskState.FAILED]


def test_an_unsent_round_neither_counts_as_a_refusal_nor_resets_the_count() -> None:
    lab = gang()
    lab.reports("train/* nostart disk").uncordon("a-0").uncordon("a-1").schedule()
    go_again(lab.not_sent("train/*"))
    assert lab.the_job("train").refused_rounds == 1
    lab.reports("train/* running").reports("train/* lost")
    assert lab.the_job("train").refused_rounds == 0


def test_of_two_failures_at_the_same_time_the_lower_rank_is_to_blame() -> None:
    lab = gang().reports("train/* running").reports("train/task-1 exited 2", "train/task-0 exited 1")
    end = lab.the_job("train").end
    assert end is not None
    assert str(end.trigger) == "train/task-0"


def test_a_clock_that_was_set_back_does_not_hold_up_a_verdict() -> None:
    lab = gang().reports("train/* running").silent("a-1").reports("train/task-0 exited 1")
    assert not lab.state_of("train").terminal
    assert lab.advance(-3600.0).schedule().state_of("train") is JobState.FAILED


def test_a_failure_at_time_zero_fails_its_gang() -> None:
    lab = Lab()
    lab.now = 0.0
    lab.slice("a").job("train", tpu="v4-16").schedule().reports("train/* running").reports(
        "train/task-0 exited 1"
    )
    assert lab.state_of("train") is JobState.FAILED


def test_without_patience_no_verdict_waits() -> None:
    lab = Lab(Limits(settle_seconds=0.0)).slice("a").job("train", tpu="v4-16").schedule()
    lab.reports("train/* running").silent("a-1").reports("train/task-0 exited 1")
    assert lab.state_of("train") is JobState.FAILED


def test_a_gang_of_two_slices_is_one_gang() -> None:
    lab = Lab().slice("a").slice("b").job("train", tpu="v4-16", slices=2).schedule()
    lab.reports("train/* running").reports("train/task-3 exited 1")
    assert [lab.task("train", index).state.value for index in range(4)] == [*["WORKER_FAILED"] * 3, "FAILED"]
    stopping = [str(name) for name, attempt in lab.cluster.live_attempts() if attempt.stop]
    assert stopping == [f"train/task-{index}/attempt-0" for index in range(3)]
