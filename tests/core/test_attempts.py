"""A worker's word about one attempt, and who may say that it has not started."""

from __future__ import annotations

import sys

import pytest

from iris_cli.core import AttemptId, AttemptState, End, EndReason, JobId, JobState, TaskId, TaskState, Token
from iris_cli.core.events.events import DispatchTakenOver
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, gangs
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.limits import Limits
from tests.support.lab import GIB, START, Lab

NEVER_BACK_TO_WAITING = [
    state.value.lower() for state in RemoteState if state not in (RemoteState.NOSTART, RemoteState.STOPPED)
]


def assigned() -> Lab:
    return Lab().worker("w").job("train").schedule()


def running() -> Lab:
    return assigned().reports("train/* running")


@pytest.mark.parametrize(
    ("said", "attempt", "task"),
    [
        ("absent", "ASSIGNED", "ASSIGNED"),
        ("preparing", "ASSIGNED", "ASSIGNED"),
        ("prepared", "ASSIGNED", "ASSIGNED"),
        ("launching 5s-ago", "ASSIGNED", "ASSIGNED"),
        ("launching 11s-ago", "STOPPING", "ASSIGNED"),
        ("running", "RUNNING", "RUNNING"),
        ("orphaned", "RUNNING", "RUNNING"),
        ("stopping", "ASSIGNED", "ASSIGNED"),
        ("unkillable", "ASSIGNED", "ASSIGNED"),
        ("exited 0", "ENDED", "SUCCEEDED"),
        ("exited 1", "ENDED", "FAILED"),
        ("nostart disk", "ENDED", "PENDING"),
        ("nostart setup", "ENDED", "FAILED"),
        ("lost", "ENDED", "PENDING"),
        ("stopped", "ENDED", "PENDING"),
        ("cancelled", "ENDED", "PENDING"),
    ],
)
def test_what_is_said_of_an_assigned_attempt(said: str, attempt: str, task: str) -> None:
    lab = assigned().reports(f"train/* {said}")
    assert (lab.attempt("train").state, lab.task("train").state) == (attempt, task)


@pytest.mark.parametrize(
    ("said", "attempt", "task"),
    [
        ("absent", "STOPPING", "RUNNING"),
        ("preparing", "RUNNING", "RUNNING"),
        ("launching 1h-ago", "RUNNING", "RUNNING"),
        ("running", "RUNNING", "RUNNING"),
        ("orphaned", "RUNNING", "RUNNING"),
        ("stopping", "RUNNING", "RUNNING"),
        ("unkillable", "RUNNING", "RUNNING"),
        ("exited 0", "ENDED", "SUCCEEDED"),
        ("exited 137", "ENDED", "FAILED"),
        ("nostart disk", "ENDED", "PENDING"),
        ("lost", "ENDED", "PENDING"),
        ("stopped", "ENDED", "PENDING"),
    ],
)
def test_what_is_said_of_a_running_attempt(said: str, attempt: str, task: str) -> None:
    lab = running().reports(f"train/* {said}")
    assert (lab.attempt("train").state, lab.task("train").state) == (attempt, task)


@pytest.mark.parametrize("said", NEVER_BACK_TO_WAITING)
def test_what_is_said_of_an_attempt_that_is_being_stopped_does_not_bring_it_back(said: str) -> None:
    words = f"{said} 0" if said == "exited" else said
    lab = running().cancel("train").reports(f"train/* {words}")
    assert lab.task("train").state is TaskState.KILLED
    over = said in ("exited", "cancelled", "lost")
    assert lab.attempt("train").state is (AttemptState.ENDED if over else AttemptState.STOPPING)


def test_an_attempt_that_is_being_stopped_and_could_not_start_is_over_as_a_stopped_one_is() -> None:
    lab = assigned().cancel("train").reports("train/* nostart disk")
    assert lab.attempt("train").state is AttemptState.ENDED
    assert (lab.task("train").state, lab.attempt("train").end) == (
        TaskState.KILLED,
        assigned().cancel("train").reports("train/* stopped").attempt("train").end,
    )


def test_an_exit_that_was_never_seen_running_did_run() -> None:
    lab = assigned().advance(30).reports("train/* exited 0 10s-ago")
    attempt = lab.attempt("train")
    assert attempt.end is not None
    assert (attempt.acknowledged, attempt.started_at, attempt.end.at) == (True, START + 20, START + 20)


def test_times_are_those_of_the_operator_whatever_the_clock_of_the_worker_says() -> None:
    lab = assigned().advance(100).reports("train/* running 40s-ago")
    assert lab.attempt("train").started_at == START + 60
    end = lab.advance(100).reports("train/* exited 3 25s-ago").attempt("train").end
    assert end is not None
    assert (end.at, lab.attempt("train").ended_at) == (START + 175, START + 200)


def test_the_last_lines_of_the_log_stay_with_the_attempt() -> None:
    lab = running()
    token = lab.attempt("train").token
    said = AttemptReport(token=token, state=RemoteState.EXITED, exit_code=1, log_tail="Traceback ...")
    lab.answers(lab.answer_of("w", said))
    ends = lab.attempt("train").end, lab.task("train").end
    assert [end.log_tail for end in ends if end] == ["Traceback ...", ""]


def test_a_word_about_another_token_changes_nothing() -> None:
    lab = running()
    draft = Draft(lab.cluster, lab.now)
    said = AttemptReport(token=Token("f" * 32), state=RemoteState.EXITED, exit_code=0)
    attempts.apply_report(draft, lab.task("train").current_id, said, lab.limits)
    assert draft.events == []


@pytest.mark.parametrize("state", list(RemoteState))
def test_a_word_about_an_attempt_that_is_over_changes_nothing(state: RemoteState) -> None:
    lab = running().reports("train/* lost").schedule()
    draft = Draft(lab.cluster, lab.now)
    said = AttemptReport(token=lab.attempt("train", number=0).token, state=state, exit_code=0)
    attempts.apply_report(draft, AttemptId(lab.task("train").id, 0), said, lab.limits)
    assert draft.events == []


@pytest.mark.parametrize(
    ("told", "passed", "stopped"),
    [
        (600.0, 0.0, False),
        (780.0, 0.0, False),
        (781.0, 0.0, True),
        (1.0, 1e9, False),  # our clock jumped: how long it takes is told by the worker
        (None, 780.0, False),
        (None, 781.0, True),  # a worker that can't tell
    ],
)
def test_a_set_up_that_hangs_is_left_to_its_worker_for_a_while(
    told: float | None, passed: float, stopped: bool
) -> None:
    lab = Lab().worker("w").job("train", setup="make", setup_timeout=600.0).schedule().advance(passed)
    token = lab.attempt("train").token
    lab.answers(lab.answer_of("w", AttemptReport(token=token, state=RemoteState.PREPARING, started_ago=told)))
    assert (lab.attempt("train").stop is not None) is stopped


@pytest.mark.parametrize("state", [RemoteState.RUNNING, RemoteState.ORPHANED])
@pytest.mark.parametrize(
    ("told", "waited", "stopped"),
    [
        (690.0, 0.0, False),  # its wrapper may still be ending it: a grace of 30 s and a minute
        (691.0, 0.0, True),
        (4000.0, 3600.0, False),  # our clock jumped since the answer
        (None, 0.0, False),
    ],
)
def test_a_task_that_nobody_on_its_worker_stops_at_its_time_limit_is_stopped(
    state: RemoteState, told: float | None, waited: float, stopped: bool
) -> None:
    lab = Lab().worker("w").job("train", timeout=600.0, grace=30.0, max_retries_failure=1).schedule()
    lab.reports("train/* running").advance(1e6)
    report = AttemptReport(
        token=lab.attempt("train").token, state=state, started_ago=told, waited=waited, last_output_ago=0.0
    )
    draft = Draft(lab.cluster, lab.now)
    attempts.apply_report(draft, AttemptId(lab.task("train").id, 0), report, lab.limits)
    stop = draft.cluster.attempt(AttemptId(lab.task("train").id, 0)).stop
    assert (stop.reason if stop else None) == (EndReason.TIMEOUT if stopped else None)


def test_a_stop_at_the_time_limit_is_final_and_of_a_gang_ends_all_ranks() -> None:
    lab = Lab().slice("a").job("train", tpu="v4-16", timeout=600.0, max_retries_failure=1).schedule()
    lab.reports("train/* running").advance(1e6).reports("train/task-1 orphaned 1000s-ago")
    assert [lab.attempt("train", index).stop is not None for index in (0, 1)] == [True, True]
    lab.reports("train/* stopped")
    assert [lab.task("train", index).state for index in (0, 1)] == [TaskState.WORKER_FAILED, TaskState.FAILED]
    end = lab.cluster.jobs[JobId("train")].end
    assert end is not None
    assert (end.reason, end.trigger) == (EndReason.TIMEOUT, lab.task("train", 1).id)


def test_a_set_up_without_a_time_limit_may_take_for_ever() -> None:
    lab = Lab().worker("w").job("train", setup="make", setup_timeout=0.0).schedule().advance(1e6)
    assert lab.reports("train/* preparing").attempt("train").stop is None


def test_the_same_word_twice_changes_nothing_the_second_time() -> None:
    for said in ("prepared", "running", "exited 0", "nostart disk", "lost", "stopped", "unkillable"):
        lab = assigned().reports(f"train/* {said}")
        assert lab.last != ()
        assert lab.reports(f"train/task-0/attempt-0 {said}").last == (), said


# Who may say "not started"


@pytest.mark.parametrize(
    ("age", "taken_over"), [(0.0, False), (59.9, False), (60.0, True), (-0.1, True), (1e6, True)]
)
def test_an_attempt_is_taken_over_when_its_lease_is_over_or_the_clock_went_wrong(
    age: float, taken_over: bool
) -> None:
    lab = assigned().advance(age).schedule()
    assert lab.attempt("train").taken_over is taken_over
    assert any(isinstance(event, DispatchTakenOver) for event in lab.last) is taken_over
    assert not any(isinstance(event, DispatchTakenOver) for event in lab.schedule().last)


def test_an_attempt_that_was_acknowledged_needs_no_other_dispatcher() -> None:
    assert not assigned().reports("train/* prepared").advance(1e6).schedule().attempt("train").taken_over


@pytest.mark.parametrize("said", ["prepared", "running", "exited 0"])
def test_not_sent_is_no_word_about_what_the_worker_has(said: str) -> None:
    lab = assigned().reports(f"train/* {said}")
    before = lab.task("train")
    assert lab.not_sent("train/task-0/attempt-0").last == ()
    assert lab.task("train") == before


def test_after_a_take_over_not_sent_proves_nothing() -> None:
    lab = assigned().advance(61).schedule()
    assert lab.not_sent("train/*").last == ()
    assert lab.attempt("train").live


def test_what_was_never_sent_needs_no_stop() -> None:
    lab = assigned().cancel("train").not_sent("train/task-0/attempt-0")
    assert lab.attempt("train").state is AttemptState.ENDED
    assert lab.task("train").state is TaskState.KILLED
    assert list(lab.cluster.live_attempts()) == []


# Jobs


def test_a_cancelled_job_says_so_and_frees_nothing_by_saying_it() -> None:
    lab = running().cancel("train", "wrong data")
    end = lab.the_job("train").end
    assert end is not None
    assert (lab.state_of("train"), end.reason, end.error) == (
        JobState.KILLED,
        EndReason.CANCELLED,
        "wrong data",
    )
    assert len(lab.the_worker("w").claims) == 1


def test_what_a_plan_places_of_a_job_that_ends_with_the_same_plan_is_not_placed() -> None:
    """The deadline of one task ends its job; its other tasks and its children stay where they are."""
    lab = Lab().worker("w", cpu=1).worker("w2", cpu=1).drain("w2")
    lab.job("sweep", replicas=2, scheduling_timeout=60.0, max_retries_failure=1).schedule()
    lab.job("sweep/child").reports("sweep/task-0 exited 1").advance(61).uncordon("w2")
    planned = {str(assignment.task) for assignment in lab.plan().assignments}
    assert planned == {"sweep/task-0", "sweep/child/task-0"}
    lab.schedule()
    assert lab.state_of("sweep") is JobState.UNSCHEDULABLE
    assert lab.state_of("sweep/child") is JobState.KILLED
    assert list(lab.cluster.live_attempts()) == []


def test_deciding_the_end_of_a_rank_names_the_tasks_to_kill() -> None:
    lab = Lab().slice("a", "v4-32").job("train", tpu="v4-32").schedule().reports("train/* running")
    draft = Draft(lab.cluster, lab.now)
    attempt_id = AttemptId(TaskId(JobId("train"), 2), 0)
    attempts.end_attempt(draft, attempt_id, End(reason=EndReason.USER_ERROR, at=lab.now, exit_code=3))
    gangs.decide_round(draft, JobId("train"), Limits())
    assert [str(task) for task in draft.tasks_to_kill] == ["train/task-0", "train/task-1", "train/task-3"]


def test_what_its_lease_ended_before_anybody_heard_of_its_start_had_started() -> None:
    lab = assigned().reports("train/* cancelled lease")
    attempt = lab.attempt("train")
    assert attempt.started_at is not None
    assert attempt.end is not None
    assert attempt.end.reason is EndReason.WORKER_FAILED
    (task,) = lab.cluster.tasks.values()
    assert task.preemptions == 1


def test_the_end_of_a_task_costs_the_same_however_many_others_its_job_has() -> None:
    few, many = (calls_per_end(tasks) for tasks in (20, 200))
    assert many < 2 * few


def calls_per_end(tasks: int) -> float:
    """Function calls, so that nobody's clock is asked."""
    lab = Lab().worker("w", cpu=tasks, memory=tasks * GIB).job("many", replicas=tasks, cpu=1.0, memory=GIB)
    lab.schedule().reports("many/* running")
    draft, calls = Draft(lab.cluster, lab.now), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    ended = [
        (attempt_id, attempt.token) for attempt_id, attempt in draft.cluster.live_attempts_of(JobId("many"))
    ]
    sys.setprofile(count)
    try:
        for attempt_id, token in ended:
            report = AttemptReport(token=token, state=RemoteState.EXITED, exit_code=0)
            attempts.apply_report(draft, attempt_id, report, lab.limits)
    finally:
        sys.setprofile(None)
    assert draft.cluster.job_state(JobId("many")) is JobState.SUCCEEDED
    return calls / tasks


def test_a_set_up_failed_when_it_ended_not_when_somebody_looked() -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16", setup="make").schedule().advance("1m")
    lab.reports("train/task-0 nostart setup 5s-ago", "train/task-1 nostart setup 30s-ago")
    ends = [lab.attempt("train", index).end for index in range(2)]
    assert [end and end.at for end in ends] == [lab.now - 5.0, lab.now - 30.0]
    job_end = lab.the_job("train").end
    assert str(job_end and job_end.trigger) == "train/task-1", "the earliest end is to blame"
