"""Arrays: which tasks there are, how many may run at a time; the ports of tasks, and the signal before their end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.events.events import TaskEnded
from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.core.model.array import format_indexes, indexes_of, parse_array
from iris_cli.core.model.job import EarlySignal, Job, JobState, Lines, parse_early_signal
from iris_cli.core.model.task import End, EndReason, TaskState
from iris_cli.errors import UsageError
from tests.support.lab import Lab

FILE = Lines(hash="a" * 64, count=5, size=50)


@pytest.mark.parametrize(
    ("text", "indexes", "limit"),
    [
        ("0", (0,), 0),
        ("7-7", (7,), 0),
        ("0-3", (0, 1, 2, 3), 0),
        ("0-9:3", (0, 3, 6, 9), 0),
        ("5,1,3", (1, 3, 5), 0),
        ("0-3,2-5,4", (0, 1, 2, 3, 4, 5), 0),
        ("0-2,20%4", (0, 1, 2, 20), 4),
        (" 1 , 2 % 1 ", (1, 2), 1),
        ("999999999", (999_999_999,), 0),
    ],
)
def test_an_array_is_written_as_in_slurm(text: str, indexes: tuple[int, ...], limit: int) -> None:
    assert parse_array(text) == (indexes, limit)


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "1,", "-1", "1-", "3-1", "0-9:0", "a", "0-9%", "0-9%0", "0-9%x", "0-9%1%2", "1.5", "0x1"),
        *("٣", "1000000000", "0-10000", "0-999999999", "%4", "1--2"),
    ],
)
def test_what_is_no_array_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_array(text)
    assert refused.value.hint


@given(
    st.sets(st.integers(0, 999_999_999), min_size=1, max_size=50) | st.sets(st.integers(0, 60), min_size=1)
)
def test_the_log_keeps_an_array_in_few_words_that_mean_the_same(indexes: set[int]) -> None:
    text = format_indexes(sorted(indexes))
    assert indexes_of(text) == tuple(sorted(indexes))
    assert text.count(",") < len(indexes)


def test_ten_thousand_tasks_take_a_few_bytes() -> None:
    assert format_indexes(range(10_000)) == "0-9999"


def job_of(**asked: Any) -> Job:
    return Lab().worker("w").slice("s", "v4-8").job("j", **asked).cluster.jobs[JobId("j")]


@pytest.mark.parametrize(
    ("asked", "replicas", "indexes", "written"),
    [
        ({"array": "0-2,7"}, 4, (0, 1, 2, 7), "0-2,7"),
        ({"array": "3", "replicas": 1}, 1, (3,), "3"),
        ({"lines": FILE}, 5, (0, 1, 2, 3, 4), ""),
        ({"lines": FILE, "array": "0-4"}, 5, (0, 1, 2, 3, 4), ""),
        ({"lines": FILE, "array": "1,4"}, 2, (1, 4), "1,4"),
        ({"array": "0-1", "tpu": "v4-8"}, 2, (0, 1), "0-1"),
        ({}, 1, (), ""),
    ],
)
def test_an_array_has_a_task_for_each_index_or_line(
    asked: dict[str, Any], replicas: int, indexes: tuple[int, ...], written: str
) -> None:
    job = job_of(**asked)
    assert (job.replicas, job.indexes, job.array, job.is_gang) == (replicas, indexes, written, False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"array": "0-2", "replicas": 2}, "replicas=2, but the array has 3 tasks"),
        ({"array": "0-2", "group_by": "rack"}, "an array can't be a gang"),
        ({"array": "0-2", "slices": 3, "tpu": "v4-8"}, "an array can't be a gang"),
        ({"array": "0-1", "tpu": "v4-16"}, "an array can't be a gang"),
        ({"lines": FILE, "array": "5"}, "no line 5: the lines are numbered 0 to 4"),
        ({"array": "0-5999,10000-15999"}, "12000 replicas are more than 10000"),
        ({"signal": "USR1@60"}, "needs a time limit"),
        ({"signal": "USR1@60", "timeout": 60.0}, "can't be sent 1m"),
        ({"signal": "KILL@60", "timeout": 90.0}, "is not a signal"),
        ({"ports": ("a b",)}, "is not a port name"),
        ({"ports": ("8080",)}, "is not a port name"),
        ({"ports": ("http", "HTTP")}, "port HTTP is given twice"),
        ({"ports": tuple(f"p{n}" for n in range(17))}, "17 ports are more than 16"),
    ],
)
def test_what_can_not_be_meant_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        job_of(force=True, **asked)
    assert said in refused.value.message


def running(lab: Lab) -> list[int]:
    return [
        task.index for task in lab.cluster.tasks_of(JobId("j")) if task.attempts and task.attempts[-1].live
    ]


def test_no_more_tasks_run_at_a_time_than_the_array_says() -> None:
    lab = Lab().worker("w").job("j", array="0-4%2").schedule().schedule()
    assert running(lab) == [0, 1]
    lab.reports("j/* running").reports("j/task-0 exited 0").schedule()
    assert running(lab) == [1, 2]
    lab.reports("j/task-1 exited 0", "j/task-2 exited 0").schedule()
    lab.reports("j/task-3 exited 0", "j/task-4 exited 0")
    assert lab.cluster.job_state(JobId("j")) is JobState.SUCCEEDED


def test_a_task_that_is_still_being_stopped_counts_as_one_that_runs() -> None:
    lab = (
        Lab().worker("w").job("j", array="0-2%1", max_task_failures=2).schedule().reports("j/task-0 running")
    )
    lab.cancel("j").schedule()
    assert running(lab) == [0]


def test_the_others_are_pending_because_of_the_limit_of_the_array() -> None:
    lab = Lab().worker("w").job("j", array="0-1%1").schedule()
    (reasons,) = lab.plan().waiting.values()
    assert [str(reason.kind) for reason in reasons] == ["throttled"]
    assert reasons[0].text == "at most 1 of the job's tasks run at a time"


def test_the_reason_of_a_held_array_is_that_it_is_held() -> None:
    lab = Lab().worker("w").job("j", array="0-2%1").change("j", held=True)
    kinds = [[str(reason.kind) for reason in reasons] for reasons in lab.plan().waiting.values()]
    assert sorted(kinds) == [["held"], ["held", "throttled"], ["held", "throttled"]]


def test_a_failed_dependency_ends_all_tasks_of_an_array_at_once() -> None:
    lab = Lab().worker("w").job("first").schedule().reports("first/* running")
    lab.job("j", array="0-9%3", after=("first",)).reports("first/* exited 1").schedule()
    assert states(lab) == ["UNSCHEDULABLE"] * 10
    assert lab.state_of("j") is JobState.UNSCHEDULABLE


def throttled() -> Lab:
    """`0-3%2` with a deadline of a minute: tasks 0 and 1 run, the throttle holds 2 and 3."""
    lab = Lab().worker("w", cpu=2).job("j", array="0-3%2", scheduling_timeout=60.0, max_task_failures=4)
    return lab.schedule().reports("j/* running")


def states(lab: Lab) -> list[str]:
    return [str(task.state) for task in lab.cluster.tasks_of(JobId("j"))]


def test_the_deadline_of_a_held_task_survives_a_replay_of_the_log() -> None:
    lab = throttled().advance(3600).reports("j/task-0 exited 0").drain("w").advance(61)
    assert lab.plan(lab.replayed()).timed_out_tasks == (TaskId(JobId("j"), 2),)


def test_a_task_that_no_throttle_ever_held_is_measured_from_its_submission() -> None:
    lab = Lab().worker("w", cpu=1).job("j", array="0-2%2", scheduling_timeout=60.0).schedule()
    lab.reports("j/task-0 running").advance(59).reports("j/task-0 exited 0").drain("w").advance(2)
    assert lab.plan().timed_out_tasks == (TaskId(JobId("j"), 1),)


def test_a_task_that_ended_without_being_placed_starts_the_clock_of_the_task_held_behind_it() -> None:
    lab = Lab().worker("w").drain("w")
    lab.job("j", array="0-1%1", scheduling_timeout=60.0, max_task_failures=1).advance(61)
    end = End(reason=EndReason.DISPATCH_FAILED)
    lab.records(TaskEnded(task=TaskId(JobId("j"), 0), state=TaskState.FAILED, end=end))
    assert lab.advance(60).plan().timed_out_tasks == ()
    assert lab.advance(1).plan().timed_out_tasks == (TaskId(JobId("j"), 1),)


def ports(lab: Lab, job: str) -> list[tuple[int, ...]]:
    return [task.attempts[-1].ports for task in lab.cluster.tasks_of(JobId(job)) if task.attempts]


def test_no_two_tasks_on_a_host_are_told_the_same_port() -> None:
    lab = (
        Lab()
        .worker("w", cpu=64)
        .job("a", replicas=20, ports=("http", "grpc"))
        .job("b", replicas=20, ports=("x",))
    )
    lab.schedule()
    numbers = [number for job in "ab" for each in ports(lab, job) for number in each]
    assert len(numbers) == 60
    assert len(set(numbers)) == 60
    assert all(30_000 <= number < 32_700 for number in numbers)


def test_tasks_without_ports_are_told_none_and_a_new_try_gets_others() -> None:
    lab = Lab().worker("w").job("a").job("b", ports=("http",), max_retries_failure=1).schedule()
    assert ports(lab, "a") == [()]
    (first,) = ports(lab, "b")
    lab.reports("b/* running").reports("b/* exited 1").schedule()
    (second,) = ports(lab, "b")
    assert first != second


def test_a_port_is_free_again_when_its_attempt_has_ended() -> None:
    lab = Lab().worker("w", cpu=2.0)
    for number in range(3):
        lab.job(f"j{number}", ports=("http",)).schedule().reports(f"j{number}/* exited 0")
    assert lab.the_worker("w").claims == {}
    assert WorkerId("w") in lab.cluster.workers


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("USR1@120", EarlySignal("USR1", 120.0)),
        ("SIGUSR2@2m", EarlySignal("USR2", 120.0)),
        ("term@0.5s", EarlySignal("TERM", 0.5)),
        ("INT", EarlySignal("INT", 60.0)),
    ],
)
def test_an_early_signal_is_written_as_in_slurm(text: str, signal: EarlySignal) -> None:
    assert parse_early_signal(text) == signal


@pytest.mark.parametrize(
    "text", ["", "@60", "KILL@60", "STOP@60", "10@60", "USR1@", "USR1@x", "USR1@0", "USR1@-5"]
)
def test_what_is_no_early_signal_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_early_signal(text)
