"""An estimate of the start of what waits only for tasks with time limits: never earlier than can be."""

from __future__ import annotations

from typing import Any

import pytest

from iris_cli.core import JobId, Priority, TaskId
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.scheduling import ExpectedStart
from tests.support.lab import START, Lab

HOUR = 3600.0


def running(lab: Lab, name: str, **asked: Any) -> Lab:
    """Location and start a job now."""
    return lab.job(name, **asked).schedule().reports(f"{name}/* running")


def expected(lab: Lab, name: str) -> ExpectedStart | None:
    job = lab.the_job(name)
    key = job.id if job.is_gang else TaskId(job.id, 0)
    return lab.plan().waiting.expected_start(key, lab.cluster)


def at(hours: float, *jobs: str) -> ExpectedStart:
    return ExpectedStart(not_before_at=START + hours * HOUR, jobs=tuple(map(JobId, jobs)))


def test_a_gang_starts_when_the_gang_on_its_slice_ends_by_its_time_limit() -> None:
    lab = running(Lab().slice("a"), "train", tpu="v4-16", timeout=HOUR)
    lab.advance("10m").job("next", tpu="v4-16")
    assert expected(lab, "next") == at(1, "train")


def test_the_slice_that_frees_first_counts() -> None:
    lab = running(Lab().slice("a").slice("b"), "late", tpu="v4-16", timeout=3 * HOUR)
    running(lab, "early", tpu="v4-16", timeout=2 * HOUR).job("next", tpu="v4-16")
    assert expected(lab, "next") == at(2, "early")


def test_all_that_hold_a_slice_must_end() -> None:
    lab = Lab().slice("a")
    for name, hours in (("first", 2), ("second", 3)):
        running(lab, name, tpu="auto", replicas=1, group_by=None, cpu=1.0, timeout=hours * HOUR)
    lab.job("next", tpu="v4-16")
    assert expected(lab, "next") == at(3, "second")


def test_a_single_task_waits_for_enough_cores() -> None:
    lab = Lab().worker("w", cpu=8)
    for name, cpu, hours in (("a", 2, 1), ("b", 3, 2), ("c", 3, 4)):
        running(lab, name, cpu=float(cpu), timeout=hours * HOUR)
    lab.job("small", cpu=2.0).job("large", cpu=5.0)
    assert expected(lab, "small") == at(1, "a")
    assert expected(lab, "large") is None  # small is ahead of it: for both there is room only later
    assert expected(lab.cancel("small"), "large") == at(2, "b")


def test_equal_limits_name_all_jobs_that_end_then() -> None:
    lab = Lab().worker("w", cpu=2)
    for name in ("b", "a"):
        lab.job(name, cpu=1.0, timeout=HOUR)
    lab.schedule().reports("a/* running", "b/* running").job("next", cpu=2.0)
    assert expected(lab, "next") == at(1, "a", "b")


@pytest.mark.parametrize("limit", [0.0, HOUR])
def test_a_task_without_a_limit_may_end_earlier_so_nothing_is_claimed(limit: float) -> None:
    lab = running(Lab().slice("a").slice("b"), "limited", tpu="v4-16", timeout=HOUR)
    running(lab, "other", tpu="v4-16", timeout=limit).job("next", tpu="v4-16")
    assert expected(lab, "next") == (at(1, "limited", "other") if limit else None)


def test_a_task_without_a_limit_that_is_not_in_the_way_does_not_count() -> None:
    lab = running(Lab().worker("w", cpu=8), "side", cpu=1.0)
    running(lab, "train", cpu=7.0, timeout=HOUR).job("next", cpu=4.0)
    assert expected(lab, "next") == at(1, "train")


def test_a_task_that_has_not_started_has_no_end_yet() -> None:
    lab = Lab().slice("a").job("train", tpu="v4-16", timeout=HOUR).schedule().job("next", tpu="v4-16")
    assert expected(lab, "next") is None


def test_a_limit_that_has_passed_says_nothing() -> None:
    lab = running(Lab().slice("a"), "train", tpu="v4-16", timeout=HOUR).job("next", tpu="v4-16")
    assert expected(lab.advance("61m"), "next") is None


def test_other_reasons_to_wait_have_no_time() -> None:
    lab = running(Lab().slice("a").slice("b"), "train", tpu="v4-16", timeout=HOUR)
    lab.drain("b-0").job("next", tpu="v4-16").job("after", tpu="v4-16", after=("train",))
    assert expected(lab, "next") is None  # b may come back earlier
    assert expected(lab, "after") is None
    lab.job("never", tpu="v4-16", constraints=(parse_constraint("pool=x"),), force=True)
    assert expected(lab, "never") is None


def test_a_stop_under_way_has_no_time() -> None:
    lab = running(Lab().slice("a"), "train", tpu="v4-16", timeout=HOUR).job("next", tpu="v4-16")
    assert expected(lab.cancel("train"), "next") is None


def test_what_starts_in_the_next_cycle_needs_no_estimate() -> None:
    assert expected(Lab().slice("a").job("next", tpu="v4-16"), "next") is None


def test_the_next_task_of_an_array_is_expected_at_the_end_of_a_running_one() -> None:
    lab = Lab().worker("w", cpu=2).job("sweep", array="0-5", cpu=1.0, timeout=HOUR)
    lab.schedule().reports("sweep/task-0 running", "sweep/task-1 running")
    found = lab.plan().waiting.expected_start(TaskId(JobId("sweep"), 2), lab.cluster)
    assert found == at(1, "sweep")


def test_a_child_job_does_not_wait_for_the_end_of_its_parent() -> None:
    lab = running(Lab().worker("w", cpu=8), "sweep", cpu=5.0, timeout=HOUR)
    lab.job("sweep/fold", cpu=4.0).job("other", cpu=4.0)
    assert expected(lab, "sweep/fold") is None
    assert expected(lab.cancel("sweep/fold"), "other") == at(1, "sweep")


def test_a_time_limit_that_ends_the_pending_task_too_is_no_start() -> None:
    lab = running(Lab().worker("w", cpu=8).worker("v", cpu=1), "own", cpu=5.0, replicas=2, timeout=HOUR)
    assert expected(lab, "own") is None  # `own` fails with the task that reaches the limit
    lab = running(Lab().worker("w", cpu=8).worker("v", cpu=1), "other", cpu=8.0, timeout=2 * HOUR)
    running(lab, "sweep", cpu=1.0, timeout=HOUR).job("sweep/fold", cpu=4.0).job("last", cpu=4.0)
    assert expected(lab, "sweep/fold") is None
    assert expected(lab.cancel("sweep/fold"), "last") == at(2, "other")


def test_a_child_job_ends_by_the_time_limit_of_its_parent() -> None:
    lab = running(Lab().worker("w", cpu=8).worker("v", cpu=1), "sweep", cpu=1.0, timeout=HOUR)
    running(lab, "sweep/fold", cpu=8.0, timeout=2 * HOUR).job("last", cpu=8.0)
    assert expected(lab, "last") == at(1, "sweep")


def test_a_stop_may_be_confirmed_before_any_time_limit() -> None:
    lab = running(Lab().slice("a").slice("b"), "train", tpu="v4-16", timeout=HOUR)
    running(lab, "old", tpu="v4-16", max_retries_failure=1).job("next", tpu="v4-16", priority=Priority.HIGH)
    lab.retry("old")
    assert expected(lab, "next") is None
