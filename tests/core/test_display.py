"""How jobs and tasks read on a screen: by their state, and by what their attempts are doing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core import Attempt, AttemptState, EndReason, JobId, JobState, TaskId
from iris_cli.core.events.events import AttemptStopped, AttemptStopRequested, GangRoundEnded, TaskRequeued
from iris_cli.core.lifecycle.display import (
    DisplayWord,
    counts_in_words,
    filter_words,
    job_display,
    retry_count,
    task_displays,
    word_of,
)
from iris_cli.core.model.task import End
from tests.support.lab import Lab


def shown(lab: Lab, job: str = "train") -> str:
    return job_display(lab.cluster, JobId(job))


def tasks(lab: Lab, job: str = "train") -> list[str]:
    return task_displays(lab.cluster, JobId(job))


def made(lab: Lab, job: str = "train") -> int:
    return retry_count(lab.the_job(job), lab.cluster.tasks_of(JobId(job)))


def words(lab: Lab, job: str = "train") -> set[str]:
    return set(filter_words(lab.cluster, JobId(job)))


def single(**asked: Any) -> Lab:
    return Lab().worker("w").job("train", **asked).schedule()


def gang(**asked: Any) -> Lab:
    return Lab().slice("a").job("train", tpu="v4-16", **asked).schedule()


# One task


def test_a_job_is_pending_until_its_command_runs() -> None:
    lab = single()
    assert (shown(lab), tasks(lab)) == ("PENDING", ["ASSIGNED"])
    lab.reports("train/* running")
    assert (shown(lab), tasks(lab)) == ("RUNNING", ["RUNNING"])
    lab.reports("train/* exited 0")
    assert (shown(lab), tasks(lab)) == ("SUCCEEDED", ["SUCCEEDED"])


@pytest.mark.parametrize(
    ("said", "display"),
    [
        ("exited 1", "FAILED exit 1"),
        ("signal 139", "FAILED exit 139"),
        ("oom", "FAILED"),
        ("timeout", "FAILED"),
        ("nostart setup", "FAILED"),
        ("lost", "WORKER_FAILED"),
    ],
)
def test_a_task_that_failed_reads_with_its_own_exit(said: str, display: str) -> None:
    lab = single(max_retries_preemption=0).reports("train/* running", f"train/* {said}")
    if said == "nostart setup":
        lab = single().reports("train/* nostart setup")
    assert (shown(lab), tasks(lab)) == ("FAILED", [display])


@pytest.mark.parametrize("said", ["exited 1", "signal 139", "oom"])
def test_a_charged_retry_that_waits_is_counted(said: str) -> None:
    lab = single(max_retries_failure=3)
    for number in (1, 2, 3):
        lab.reports("train/* running").reports(f"train/* {said}")
        assert (lab.state_of("train"), shown(lab)) == (JobState.RUNNING, f"RETRYING ({number} of 3)")
        assert (tasks(lab), made(lab)) == ([f"RETRYING ({number} of 3)"], number - 1)
        lab.schedule()
        assert (shown(lab), tasks(lab)) == (f"RETRYING ({number} of 3)", ["ASSIGNED"])
        assert made(lab) == number
    lab.reports("train/* running")
    assert (shown(lab), tasks(lab)) == ("RUNNING", ["RUNNING"])
    lab.reports("train/* exited 7")
    assert (shown(lab), tasks(lab), made(lab)) == ("FAILED", ["FAILED exit 7"], 3)


def test_a_set_up_that_failed_waits_for_its_retry_though_nothing_ever_started() -> None:
    lab = single(max_retries_failure=1).reports("train/* nostart setup")
    assert (lab.state_of("train"), shown(lab)) == (JobState.PENDING, "RETRYING (1 of 1)")


def test_a_lost_host_is_no_charged_retry() -> None:
    lab = single(max_retries_failure=3).reports("train/* running").reports("train/* lost")
    assert (shown(lab), tasks(lab)) == ("RETRYING (host lost)", ["RETRYING (host lost)"])
    assert made(lab.schedule()) == 0


def test_a_start_that_failed_does_not_hide_the_retry() -> None:
    lab = single(max_retries_failure=2).reports("train/* running").reports("train/* exited 1").schedule()
    lab.not_sent("train/*")
    assert (shown(lab), tasks(lab)) == ("RETRYING (1 of 2)", ["RETRYING (1 of 2)"])


def test_a_job_that_was_never_started_is_pending_after_a_failed_start() -> None:
    lab = single().not_sent("train/*")
    assert (shown(lab), tasks(lab)) == ("PENDING", ["PENDING"])


def test_an_attempt_that_is_stopped_to_be_retried_as_asked() -> None:
    lab = single(max_retries_failure=3).reports("train/* running")
    task = TaskId(JobId("train"), 0)
    lab.records(AttemptStopRequested(task=task, attempt=0, reason=EndReason.RETRIED))
    assert (lab.state_of("train"), shown(lab), tasks(lab)) == (JobState.RUNNING, "STOPPING", ["STOPPING"])
    lab.records(AttemptStopped(task=task, attempt=0), TaskRequeued(task=task, reason=EndReason.RETRIED))
    assert (shown(lab), tasks(lab), made(lab)) == ("RETRYING (asked)", ["RETRYING (asked)"], 0)
    assert made(lab.schedule()) == 0


def test_a_cancelled_job_keeps_its_state_while_its_attempts_stop() -> None:
    lab = single().reports("train/* running").cancel("train")
    assert (shown(lab), tasks(lab)) == ("KILLED", ["STOPPING"])
    assert words(lab) == {"KILLED", "STOPPING"}
    lab.reports("train/* stopped")
    assert (shown(lab), tasks(lab), words(lab)) == ("KILLED", ["KILLED"], {"KILLED"})


def test_a_retry_that_is_cancelled_while_it_waits_was_not_made() -> None:
    lab = single(max_retries_failure=3).reports("train/* running").reports("train/* exited 1")
    assert made(lab.cancel("train")) == 0


# Arrays


def array(replicas: int, cpu: float = 16.0, **asked: Any) -> Lab:
    """Tasks that find room one after another."""
    return Lab().worker("w").job("train", replicas=replicas, cpu=cpu, **asked).schedule()


def test_between_its_tasks_an_array_is_pending_with_what_is_done() -> None:
    lab = array(3)
    lab.reports("train/task-0 running").reports("train/task-0 exited 0")
    assert (lab.state_of("train"), shown(lab)) == (JobState.RUNNING, "PENDING (1 of 3 done)")
    assert tasks(lab) == ["SUCCEEDED", "PENDING", "PENDING"]
    assert words(lab) == {"RUNNING", "PENDING"}
    lab.schedule()
    assert (shown(lab), tasks(lab)[1]) == ("PENDING (1 of 3 done)", "ASSIGNED")
    lab.reports("train/task-1 running")
    assert (shown(lab), words(lab)) == ("RUNNING", {"RUNNING"})


def test_a_throttled_array_is_pending_too() -> None:
    lab = Lab().worker("w").job("train", array="0-3%2", cpu=1.0).schedule()
    lab.reports("train/* running").reports("train/task-0 exited 0", "train/task-1 exited 0")
    assert (shown(lab), tasks(lab)) == ("PENDING (2 of 4 done)", ["SUCCEEDED"] * 2 + ["PENDING"] * 2)


def test_an_array_with_keep_going_counts_failed_tasks_as_done() -> None:
    lab = array(3, keep_going=True)
    lab.reports("train/task-0 running").reports("train/task-0 exited 2")
    assert (shown(lab), tasks(lab)) == ("PENDING (1 of 3 done)", ["FAILED exit 2", "PENDING", "PENDING"])


def test_a_retry_of_an_array_shows_while_nothing_runs() -> None:
    lab = Lab().worker("w").job("train", replicas=2, cpu=1.0, max_retries_failure=2).schedule()
    lab.reports("train/* running").reports("train/task-1 exited 1")
    assert (shown(lab), tasks(lab)) == ("RUNNING", ["RUNNING", "RETRYING (1 of 2)"])
    lab.reports("train/task-0 exited 0")
    assert (shown(lab), tasks(lab)) == ("RETRYING (1 of 2)", ["SUCCEEDED", "RETRYING (1 of 2)"])


def test_the_retry_that_waits_since_last_is_the_one_that_shows() -> None:
    lab = Lab().worker("w").job("train", replicas=2, cpu=1.0, max_retries_failure=2).schedule()
    lab.reports("train/* running").advance(5).reports("train/task-0 exited 1")
    lab.advance(5).reports("train/task-1 lost")
    assert shown(lab) == "RETRYING (host lost)"
    assert tasks(lab) == ["RETRYING (1 of 2)", "RETRYING (host lost)"]


def test_of_an_array_that_fails_fast_the_rest_is_killed() -> None:
    lab = Lab().worker("w").job("train", replicas=2, cpu=1.0, keep_going=False).schedule()
    lab.reports("train/* running").reports("train/task-0 exited 1")
    assert (shown(lab), tasks(lab)) == ("FAILED", ["FAILED exit 1", "STOPPING"])
    assert words(lab) == {"FAILED", "STOPPING"}
    lab.reports("train/task-1 stopped")
    assert (tasks(lab), words(lab)) == (["FAILED exit 1", "KILLED"], {"FAILED"})


def test_a_job_with_a_running_task_runs_whatever_else_stops() -> None:
    lab = Lab().worker("w").job("train", replicas=3, cpu=1.0).schedule()
    lab.reports("train/task-0 running", "train/task-1 running")
    stop = AttemptStopRequested(task=TaskId(JobId("train"), 1), attempt=0, reason=EndReason.WORKER_FAILED)
    lab.records(stop)
    assert (shown(lab), tasks(lab)) == ("RUNNING", ["RUNNING", "STOPPING", "ASSIGNED"])
    lab.reports("train/task-0 exited 0")
    assert shown(lab) == "STOPPING"


def test_the_fence_around_what_never_started_is_no_stop_of_the_job() -> None:
    lab = single()
    task = TaskId(JobId("train"), 0)
    lab.records(AttemptStopRequested(task=task, attempt=0, reason=EndReason.DISPATCH_FAILED))
    assert (shown(lab), tasks(lab)) == ("PENDING", ["STOPPING"])


# Gangs


def test_a_sibling_stopped_with_its_gang_is_stopped() -> None:
    lab = gang().reports("train/* running").reports("train/task-1 exited 3")
    assert (shown(lab), tasks(lab)) == ("FAILED", ["STOPPING", "FAILED exit 3"])
    assert words(lab) == {"FAILED", "STOPPING"}
    lab.reports("train/task-0 stopped")
    assert tasks(lab) == ["STOPPED", "FAILED exit 3"]
    assert words(lab) == {"FAILED", "STOPPED"}


def test_siblings_that_failed_by_themselves_read_with_their_own_exit() -> None:
    lab = gang().reports("train/* running")
    lab.reports("train/task-0 exited 4 2s-ago", "train/task-1 exited 3 9s-ago")
    assert lab.task("train", 0).end == replace(
        lab.task("train", 0).end or End(reason=EndReason.OK), reason=EndReason.SIBLING
    )
    assert tasks(lab) == ["FAILED exit 4", "FAILED exit 3"]
    assert words(lab) == {"FAILED"}


def test_a_rank_that_had_succeeded_is_stopped_with_its_gang() -> None:
    lab = gang().reports("train/* running").reports("train/task-0 exited 0")
    assert (shown(lab), tasks(lab)) == ("RUNNING", ["RUNNING", "RUNNING"])
    lab.reports("train/task-1 exited 1")
    assert tasks(lab) == ["STOPPED", "FAILED exit 1"]


def test_a_lost_host_and_the_siblings_stopped_with_it() -> None:
    lab = gang(max_retries_preemption=0).reports("train/* running").reports("train/task-0 lost")
    lab.reports("train/task-1 stopped")
    assert (shown(lab), tasks(lab)) == ("FAILED", ["WORKER_FAILED", "STOPPED"])


def test_a_round_that_is_retried_stops_then_waits_then_runs() -> None:
    lab = gang(max_retries_failure=3).reports("train/* running").reports("train/task-0 exited 1")
    assert (lab.state_of("train"), shown(lab)) == (JobState.RUNNING, "STOPPING")
    assert tasks(lab) == ["RETRYING (1 of 3)", "STOPPING"]
    assert words(lab) == {"RUNNING", "STOPPING"}
    lab.reports("train/task-1 stopped")
    assert (shown(lab), tasks(lab), made(lab)) == ("RETRYING (1 of 3)", ["RETRYING (1 of 3)"] * 2, 0)
    assert words(lab) == {"RUNNING", "RETRYING"}
    lab.schedule()
    assert (shown(lab), tasks(lab), made(lab)) == ("RETRYING (1 of 3)", ["ASSIGNED"] * 2, 1)
    lab.reports("train/* running")
    assert (shown(lab), words(lab)) == ("RUNNING", {"RUNNING"})


def test_a_round_waits_after_a_lost_host() -> None:
    lab = gang(max_retries_failure=3).reports("train/* running").reports("train/task-0 lost")
    lab.reports("train/task-1 stopped")
    assert (shown(lab), tasks(lab), made(lab)) == ("RETRYING (host lost)", ["RETRYING (host lost)"] * 2, 0)


def test_a_gang_without_a_verdict_is_stopping() -> None:
    """Rank 0 failed, the host of rank 1 is silent: who is to blame waits."""
    lab = gang(max_retries_failure=1).reports("train/* running").silent("a-1").advance(1)
    lab.reports("train/task-0 exited 1")
    assert (lab.the_job("train").settled_rounds, shown(lab)) == (0, "STOPPING")
    assert tasks(lab) == ["FAILED exit 1", "STOPPING"]


def test_a_gang_is_retried_as_asked() -> None:
    lab = gang().reports("train/* running")
    ids = lab.the_job("train").task_ids
    lab.records(*(AttemptStopRequested(task=each, attempt=0, reason=EndReason.RETRIED) for each in ids))
    assert (shown(lab), tasks(lab)) == ("STOPPING", ["STOPPING"] * 2)
    lab.records(
        *(AttemptStopped(task=each, attempt=0) for each in ids),
        GangRoundEnded(job=JobId("train"), round=0, reason=EndReason.RETRIED, trigger=ids[0]),
        *(TaskRequeued(task=each, reason=EndReason.RETRIED) for each in ids),
    )
    assert (shown(lab), tasks(lab)) == ("RETRYING (asked)", ["RETRYING (asked)"] * 2)
    assert (made(lab), made(lab.schedule())) == (0, 0)


def test_rounds_that_failed_for_good_are_no_retries() -> None:
    lab = gang(max_retries_failure=1)
    for _ in range(2):
        lab.reports("train/* running").reports("train/task-0 exited 1")
        lab.reports("train/task-1 stopped").schedule()
    assert (lab.the_job("train").failed_rounds, made(lab)) == (2, 1)


def test_jobs_that_can_never_run_keep_their_state() -> None:
    lab = Lab().worker("w").job("a").schedule().reports("a/* running").job("train", after=("a",))
    lab.reports("a/* exited 1").schedule()
    assert (shown(lab), tasks(lab)) == ("UNSCHEDULABLE", ["UNSCHEDULABLE"])


# Words


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"PENDING": 17, "SUCCEEDED": 3}, "17 pending, 3 succeeded"),
        ({"FAILED": 1, "STOPPED": 3}, "1 failed, 3 stopped with it"),
        ({"WORKER_FAILED": 1, "STOPPED": 3}, "1 worker failed, 3 stopped with it"),
        ({"FAILED": 2, "STOPPED": 2}, "2 failed, 2 stopped with them"),
        ({"FAILED": 1, "STOPPING": 3}, "1 failed, 3 stopping"),
        ({"STOPPED": 3}, "3 stopped"),
    ],
)
def test_counts_of_tasks_are_said_in_words(counts: dict[str, int], said: str) -> None:
    assert counts_in_words(counts) == said


def test_no_display_word_is_a_state() -> None:
    assert not set(DisplayWord) & {*JobState}
    assert word_of("RETRYING (1 of 3)") == DisplayWord.RETRYING


def test_every_open_job_of_which_nothing_runs_does_not_read_as_running() -> None:
    lab = Lab().slice("a").worker("w").job("train", tpu="v4-16", max_retries_failure=1)
    for _ in range(2):
        lab.schedule().reports("train/* running").reports("train/task-0 exited 1")
        live: list[Attempt] = [attempt for _, attempt in lab.cluster.live_attempts_of(JobId("train"))]
        runs = any(attempt.state is AttemptState.RUNNING for attempt in live)
        assert (shown(lab) == "RUNNING") is runs
        lab.reports("train/task-1 stopped")
        assert shown(lab) != "RUNNING"
