"""The state of a job follows from its tasks: the first rule that holds decides."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from iris_cli.core import (
    Attempt,
    Cluster,
    CoschedulingConfig,
    Job,
    JobId,
    JobState,
    Task,
    TaskId,
    TaskState,
    Token,
    WorkerId,
)
from tests.support.phases import RUNNING

TRAIN = JobId("train")
LETTERS = {
    "p": TaskState.PENDING,
    "a": TaskState.ASSIGNED,
    "r": TaskState.RUNNING,
    "S": TaskState.SUCCEEDED,
    "F": TaskState.FAILED,
    "K": TaskState.KILLED,
    "W": TaskState.WORKER_FAILED,
    "U": TaskState.UNSCHEDULABLE,
}


def state_of(
    tasks: str,
    *,
    tolerated: int = 0,
    cancelled: bool = False,
    gang: bool = False,
    keep_going: bool = False,
) -> JobState:
    """The state of a job whose tasks are in these states; what runs or ran has started."""
    job = Job(
        id=TRAIN,
        replicas=len(tasks),
        max_task_failures=tolerated,
        cancelled=cancelled,
        keep_going=keep_going,
        coscheduling=CoschedulingConfig("rack") if gang else None,
    )
    cluster = Cluster(jobs={TRAIN: job})
    for index, letter in enumerate(tasks):
        task = Task(id=TaskId(TRAIN, index), state=LETTERS[letter])
        if letter in "rSF":
            attempt = Attempt(number=0, worker=WorkerId("w"), token=Token("0" * 32), phase=RUNNING)
            task = replace(task, attempts=(attempt,))
        cluster.tasks[task.id] = task
    return cluster.job_state(TRAIN)


@pytest.mark.parametrize(
    ("tasks", "tolerated", "state"),
    [
        ("ppp", 0, JobState.PENDING),
        ("aap", 0, JobState.PENDING),
        ("arp", 0, JobState.RUNNING),
        ("Spp", 0, JobState.RUNNING),
        ("SSS", 0, JobState.SUCCEEDED),
        ("SFr", 0, JobState.FAILED),
        ("SFr", 1, JobState.RUNNING),
        ("SFS", 1, JobState.SUCCEEDED),
        ("FFS", 1, JobState.FAILED),
        ("FFp", 2, JobState.RUNNING),
        ("FF", 2, JobState.SUCCEEDED),
        ("Wrr", 0, JobState.RUNNING),
        ("Wpp", 0, JobState.PENDING),
        ("WSS", 5, JobState.FAILED),
        ("WFS", 5, JobState.FAILED),
        ("KSS", 5, JobState.FAILED),
        ("UpS", 0, JobState.UNSCHEDULABLE),
        ("UFF", 0, JobState.UNSCHEDULABLE),
    ],
)
def test_the_state_of_a_job_of_single_tasks_follows_from_its_tasks(
    tasks: str, tolerated: int, state: JobState
) -> None:
    assert state_of(tasks, tolerated=tolerated) is state


@pytest.mark.parametrize(
    ("tasks", "state"),
    [
        ("pp", JobState.PENDING),
        ("rr", JobState.RUNNING),
        ("rS", JobState.RUNNING),
        ("SS", JobState.SUCCEEDED),
        ("FW", JobState.FAILED),
        ("WW", JobState.FAILED),
        ("Wr", JobState.FAILED),
        ("UU", JobState.UNSCHEDULABLE),
    ],
)
def test_the_state_of_a_gang_follows_from_its_tasks(tasks: str, state: JobState) -> None:
    assert state_of(tasks, gang=True) is state


@pytest.mark.parametrize(
    ("tasks", "state"),
    [
        ("KK", JobState.KILLED),
        ("SK", JobState.KILLED),
        ("FK", JobState.KILLED),
        ("UK", JobState.UNSCHEDULABLE),
    ],
)
def test_a_job_that_was_cancelled_before_it_was_over_is_killed_or_unschedulable(
    tasks: str, state: JobState
) -> None:
    assert state_of(tasks, cancelled=True) is state


def test_only_pending_and_running_are_open() -> None:
    assert [state for state in JobState if not state.terminal] == [JobState.PENDING, JobState.RUNNING]


def test_a_task_is_over_in_five_states() -> None:
    assert [state.value for state in TaskState if state.terminal] == [
        "SUCCEEDED",
        "FAILED",
        "KILLED",
        "WORKER_FAILED",
        "UNSCHEDULABLE",
    ]


@pytest.mark.parametrize(
    ("tasks", "tolerated", "state"),
    [
        ("Frp", 0, JobState.RUNNING),
        ("FFFp", 0, JobState.RUNNING),
        ("Wpp", 0, JobState.PENDING),
        ("UpS", 0, JobState.RUNNING),
        ("USS", 5, JobState.UNSCHEDULABLE),
        ("SFS", 0, JobState.FAILED),
        ("SFS", 1, JobState.SUCCEEDED),
        ("FFS", 1, JobState.FAILED),
        ("WSS", 5, JobState.FAILED),
        ("SSS", 0, JobState.SUCCEEDED),
    ],
)
def test_with_keep_going_a_failed_task_decides_only_when_all_tasks_have_ended(
    tasks: str, tolerated: int, state: JobState
) -> None:
    assert state_of(tasks, tolerated=tolerated, keep_going=True) is state


def test_with_keep_going_a_cancellation_ends_the_job_at_once() -> None:
    assert state_of("FrK", cancelled=True, keep_going=True) is JobState.KILLED
