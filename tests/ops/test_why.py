"""`iris why` after the fact: why something was placed where it is, how it ended, and what a worker takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.lifecycle.display import not_running_words
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.resources import Device
from iris_cli.errors import UsageError
from iris_cli.ops.outcomes.causes import without_worker
from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.live_view import Urgency, live_view
from iris_cli.ops.views.status import cluster_status
from iris_cli.ops.views.view import load_view
from iris_cli.ops.views.why import why
from iris_cli.render.as_json import json_text
from iris_cli.render.console import Output
from iris_cli.render.tables import expected_words
from iris_cli.render.views.job_tables import show_job
from iris_cli.render.views.status import where_and_why
from iris_cli.render.views.why import show_why
from tests.ops.test_failure import DISK, card, ended, gang
from tests.render.scenes import session_of
from tests.support.lab import Lab


def chosen(lab: Lab, directory: Path, subject: str) -> list[str]:
    return [place.chosen for place in why(session_of(lab, directory / "state"), subject).places]


def test_every_rank_of_a_gang_knows_later_why_it_was_placed_there(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").slice("b", "v4-16").job("first", tpu="v4-16").schedule()
    lab.job("second", tpu="v4-16").schedule().reports("second/* running").advance("1h")
    assert chosen(lab, tmp_path, "second") == ["chose b: a busy"] * 2


def test_each_round_of_a_gang_has_its_own_reason(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").slice("b", "v4-16").job("train", tpu="v4-16", max_retries_failure=1)
    lab.schedule().reports("train/* running").drain("a-1")
    lab.reports("train/task-1 exited 1", "train/task-0 stopped").schedule()
    assert chosen(lab, tmp_path, "train") == ["chose b: a draining"] * 2


def test_nothing_is_said_where_nobody_was_passed_over(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("j", replicas=2).schedule()
    assert chosen(lab, tmp_path, "j") == ["", ""]


def test_a_task_was_chosen_a_place_because_of_who_came_before_it(tmp_path: Path) -> None:
    lab = Lab().worker("a", cpu=4).worker("b", cpu=4).job("first", cpu=4).job("second", cpu=4).schedule()
    assert chosen(lab, tmp_path, "second/task-0") == ["chose b: a assigned to first"]


@pytest.mark.parametrize(
    ("worker", "job", "sentence"),
    [
        ({"cpu": 4}, {"cpu": 4}, "new tasks: all cores in use by j"),
        ({"memory": 1 << 30}, {"memory": 1 << 30}, "new tasks: all memory in use by j"),
        ({"gpus": 2}, {"gpu": "auto:2"}, "GPU tasks: GPUs in use by j"),
        ({"gpus": 2}, {"gpu": "auto:1"}, None),
        ({}, {"cpu": 1}, None),
    ],
    ids=["cores", "memory", "gpus", "a gpu left", "room"],
)
def test_a_worker_that_is_full_says_of_what(
    worker: dict[str, Any], job: dict[str, Any], sentence: str | None, tmp_path: Path
) -> None:
    lab = Lab().worker("w", **worker).job("j", **job).schedule()
    assert bool(lab.the_worker("w").claims) is bool(job)
    assert why(session_of(lab, tmp_path / "state"), "w").occupied == ((sentence,) if sentence else ())


def test_a_worker_whose_chips_are_taken_takes_no_tpu_work(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule()
    found = why(session_of(lab, tmp_path / "state"), "a-1")
    assert found.occupied == ("TPU tasks: chips in use by train",)


def test_a_worker_that_is_reserved_for_a_gang_names_it(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("holder", cpu=200).schedule()
    lab.job("train", tpu="v4-16", cpu=100).advance("11m")
    found = why(session_of(lab, tmp_path / "state"), "a-1")
    assert found.occupied == ("tasks that would delay train: reserved for it",)


def test_a_worker_that_is_reserved_for_a_large_task_names_it(tmp_path: Path) -> None:
    lab = Lab().worker("w", gpus=8).job("small", gpu="A100", replicas=8).schedule()
    lab.job("large", gpu="A100:8").advance("11m")
    session = session_of(lab, tmp_path / "state")
    assert why(session, "w").occupied[-1] == "tasks that would delay large/task-0: reserved for it"
    (wait,) = why(session, "large").waits
    assert wait.explanation is not None
    assert str(wait.explanation.reasons[0]).endswith("; worker w reserved for it")


def test_each_table_has_the_words_in_which_the_task_itself_is_explained(tmp_path: Path) -> None:
    session = session_of(ended(gang(), "train/task-2", 1, DISK), tmp_path / "state")
    words = "exit 1: disk full or no inodes left"
    assert why(session, "train/task-2").cause == words
    assert [each.cause for each in why(session, "train").ends if each.task.index == 2] == [words]
    row = job_status(session, "train").tasks[2]
    assert (row.why, row.attempts[-1].why) == (words, words)


def test_a_task_that_was_cancelled_is_not_explained_by_how_it_failed_before(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("j", max_retries_failure=1).schedule().reports("j/* running")
    session = session_of(ended(lab, "j/task-0", 1, DISK).cancel("j"), tmp_path / "state")
    assert why(session, "j/task-0").cause == job_status(session, "j").tasks[0].why
    assert "disk" not in why(session, "j/task-0").cause


@pytest.mark.parametrize(
    ("waits", "patience", "words"),
    [
        ("9m59s", 600.0, ""),
        ("10m", 600.0, "pending for 10m (gang_reserve_after: 10m)"),
        ("14m10s", 600.0, "pending for 14m (gang_reserve_after: 10m)"),
        ("1h", 0.0, ""),
        ("30.7s", 30.0, "pending for 30s (gang_reserve_after: 30s)"),
    ],
)
def test_a_gang_is_overdue_for_all_who_look_at_the_same_moment(
    waits: str, patience: float, words: str, tmp_path: Path
) -> None:
    lab = gang().job("next", tpu="v5litepod-16").advance(waits)
    session = session_of(lab, tmp_path / "state")
    session.config = replace(session.config, limits=replace(session.limits, gang_reserve_after=patience))
    (on_board,) = (job for job in live_view(session).jobs if job.row.id == "next")
    assert why(session, "next").overdue == on_board.row.overdue == words
    assert (on_board.overdue_since is not None, on_board.urgency is Urgency.OVERDUE) == (bool(words),) * 2


def test_a_job_that_lost_a_host_blames_that_task_and_not_those_whose_failure_was_tolerated(
    tmp_path: Path,
) -> None:
    lab = Lab().worker("w", cpu=3).job("sweep", replicas=4, max_task_failures=2, max_retries_preemption=0)
    lab.worker("x", cpu=1).schedule().reports("sweep/* running").advance("1h")
    ended(lab, "sweep/task-0", 1, "oops\n")
    ended(lab, "sweep/task-1", 1, "oops\n")
    lab.reports("sweep/task-2 exited 0").hosts[WorkerId("x")].reboot()
    session = session_of(lab.answers(lab.answer_of("x")), tmp_path / "state")
    words = "task-3 failed: host x was rebooted"
    found = card(session, "sweep")
    assert (str(found.task), f"{found.headline}: {found.cause}") == ("sweep/task-3", words)
    assert cluster_status(session).jobs[0].why == why(session, "sweep").cause == words


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_an_expected_start_is_shown_in_local_time_rounded_up_and_marked_as_an_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16", timeout=90 * 60 + 1).schedule()
    lab.reports("train/* running").advance("10m").job("next", tpu="v4-16")
    session = session_of(lab, tmp_path / "state")
    answer, status = why(session, "next"), job_status(session, "next")
    (wait,) = answer.waits
    assert wait.expected_start == status.expected_start
    assert expected_words(wait.expected_start, lab.now) == (
        "not before 10:31 CET (estimate): train ends by its time limit"
    )
    assert wait.expected_start is not None
    later = replace(wait.expected_start, not_before_at=wait.expected_start.not_before_at + 86_400 - 1)
    later = replace(later, jobs=(*later.jobs, JobId("eval-1"), JobId("eval-2")))
    assert expected_words(later, lab.now) == (
        "not before 2027-01-16 10:30 CET (estimate): train, eval-[1-2] end by their time limits"
    )
    show_why(Output(), answer)
    show_job(Output(), status)
    said = "expected start not before 10:31 CET (estimate): train ends by its time limit"
    assert " ".join(capsys.readouterr().out.split()).count(said) == 2
    written = json.loads(json_text(status))["expected_start"]
    assert written == {"not_before_at": "2027-01-15T09:30:01.000Z", "jobs": ["train"]}


def test_nothing_is_expected_where_a_scale_group_may_add_a_slice(tmp_path: Path) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16", timeout=3600).schedule()
    lab.reports("train/* running").job("next", tpu="v4-16")
    view, job = load_view(session_of(lab, tmp_path / "state")), lab.the_job("next")
    assert view.expected_start(job, job.task_ids[0]) is not None
    growing = replace(view, offered=(Device("tpu", "v4-16"),))
    assert growing.expected_start(job, job.task_ids[0]) is None


def test_a_task_that_failed_after_its_job_had_ended_was_not_stopped(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("sweep", replicas=3).schedule().reports("sweep/* running").advance("1h")
    ends = [
        AttemptReport(
            token=lab.attempt("sweep", n).token, state=RemoteState.EXITED, exit_code=n, ended_ago=1.0
        )
        for n in (1, 2)
    ]
    lab.answers(lab.answer_of(lab.attempt("sweep", 1).worker, *ends))
    rows = job_status(session_of(lab, tmp_path / "state"), "sweep").tasks
    assert [row.why for row in rows[1:]] == ["exit 1", "exit 2; the job had ended"]


def test_why_leads_to_doctor_while_a_running_rank_is_on_a_silent_host(tmp_path: Path) -> None:
    lab = Lab().slice("a", workers=2).job("train", tpu="v4-16").schedule().reports("train/* running")
    assert why(session_of(lab, tmp_path / "one"), "train").next == ""
    assert why(session_of(lab.silent("a-1"), tmp_path / "two"), "train").next == "iris doctor"


def test_a_rank_that_has_ended_before_its_gang_does_not_look_as_if_it_ran(tmp_path: Path) -> None:
    lab = Lab().slice("a", workers=2).job("train", tpu="v4-16").schedule().reports("train/* running")
    session = session_of(lab.reports("train/task-0 exited 0"), tmp_path / "state")
    ended, running = job_status(session, "train").tasks
    assert (ended.display, ended.why) == ("RUNNING", "exit 0, waiting for the other ranks")
    assert (running.display, running.why) == ("RUNNING", "")
    task = session.cluster.tasks_of(JobId("train"))[0]
    assert not_running_words(session.cluster, task) == "not running (ended before its gang)"


def test_there_is_no_view_of_the_future(tmp_path: Path) -> None:
    session = session_of(Lab().worker("w"), tmp_path / "state")
    with pytest.raises(UsageError, match="is in the future"):
        cluster_status(session, at="2030-01-01")


def test_a_job_that_is_being_set_up_says_so_and_names_its_output(tmp_path: Path) -> None:
    lab = Lab().slice("a").worker("w").job("train", tpu="v4-16", setup="pip install .")
    lab = lab.job("single", setup="pip install .").job("bare").schedule()
    lab.reports("train/* preparing").reports("single/* preparing").reports("bare/* preparing").advance("90s")
    session = session_of(lab, tmp_path / "state")
    seen = {job: job_status(session, job) for job in ("train", "single", "bare")}
    words = {
        "train": {"the set-up of the gang has run for 1m30s"},
        "single": {"the set-up has run for 1m30s"},
        "bare": {"received by its worker, not started yet"},
    }
    assert {job: {each.why for each in found.tasks} for job, found in seen.items()} == words
    assert {job: {found.job.why} for job, found in seen.items()} == words
    assert {job: {each.doubt for each in why(session, job).places} for job in seen} == words
    groups = {each.row.id: {group.why for group in each.task_groups} for each in live_view(session).jobs}
    assert groups == words
    assert seen["train"].next == why(session, "train").next == "iris logs train"
    assert seen["bare"].next == "iris why bare"


def test_a_job_with_an_attempt_on_a_quarantined_worker_leads_to_doctor(tmp_path: Path) -> None:
    lab = Lab().slice("a", workers=2).job("train", tpu="v4-16", max_retries_failure=1).schedule()
    lab.reports("train/* running").reports("train/task-0 exited 1").reports("train/task-1 unkillable")
    session = session_of(lab, tmp_path / "state")
    assert job_status(session, "train").next == why(session, "train").next == "iris doctor"
    (worker,) = [each for each in cluster_status(session).workers if each.refuses]
    assert worker.refuses[0].endswith("reboot the host, then `iris worker uncordon a-1`")


def test_tasks_on_unreachable_workers_have_the_same_reason(tmp_path: Path) -> None:
    lab = Lab().slice("a", workers=2).job("train", tpu="v4-16").schedule().reports("train/* running")
    for name in ("a-0", "a-1"):
        detail = f"worker {name} at {name}.example.org:22: Name or service not known"
        silence = lab.silence_of(name)
        lab.answers(replace(silence, step="resolve", detail=detail))
    rows = job_status(session_of(lab.advance("5s"), tmp_path / "state"), "train").tasks
    (reason,) = {row.why for row in rows}
    assert reason.startswith("worker: suspect for 5s (resolve: Name or service not known); ")


def test_why_says_of_an_orphaned_attempt_what_the_status_says(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").reports("job/* orphaned")
    session = session_of(lab, tmp_path / "state")
    (place,), (row,) = why(session, "job").places, job_status(session, "job").tasks
    assert place.doubt == row.why == "orphaned: still running, but its exit code can't be recorded"


def test_a_tainted_worker_accepts_only_tasks_that_tolerate_the_taint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of(Lab().worker("w").taint("w", "slow"), tmp_path / "state")
    show_why(Output(), why(session, "w"))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("accepts ")] == [
        "accepts only tasks that tolerate slow"
    ]


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("connect: worker w1 at 10.0.0.1:22: Connection refused", "connect: Connection refused"),
        ("connect: worker w1 at ::1:22: Connection refused", "connect: Connection refused"),
        ("connect: worker w1 at h:22, from the jump host: refused", "connect: from the jump host: refused"),
        ("SSH banner: worker w1: timeout after 10 s", "SSH banner: timeout after 10 s"),
        ("worker w1 rejected user me", "rejected user me"),
        ("connect: worker w12 at h:22: refused", "connect: worker w12 at h:22: refused"),
        ("connect: no route to host", "connect: no route to host"),
        ("worker w1", ""),
    ],
)
def test_a_problem_is_told_without_the_name_of_its_own_worker(text: str, short: str) -> None:
    assert without_worker(text, WorkerId("w1")) == short


def test_a_view_of_the_past_suggests_no_command(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("job").schedule().reports("job/* running").advance("1h")
    session = session_of(lab.reports("job/* exited 0"), tmp_path / "state")
    assert job_status(session, "job").next == "iris logs job"
    assert job_status(session, "job", at="30m").next == ""


def test_a_job_whose_attempts_are_being_stopped_says_why(tmp_path: Path) -> None:
    lab = Lab().slice("a").job("train", tpu="v4-16").schedule().reports("train/* running")
    lab.hosts[WorkerId("a-1")].wipe()
    session = session_of(lab.probe("a-1"), tmp_path / "one")
    expected = "rank 1 is being stopped: host lost"
    (row,) = cluster_status(session).jobs
    assert row.why == job_status(session, "train").job.why == why(session, "train").cause == expected
    retried = session_of(
        Lab().worker("w").job("j").schedule().reports("j/* running").retry("j"), tmp_path / "two"
    )
    assert why(retried, "j").cause == "being stopped by iris retry"


def test_a_job_is_said_to_be_stopping_on_workers_only_if_all_its_attempts_are_being_stopped(
    tmp_path: Path,
) -> None:
    lab = Lab().worker("w0", cpu=1).worker("w1", cpu=1).job("sweep", replicas=3).schedule()
    lab.reports("sweep/task-0 running", "sweep/task-1 running").retry("sweep", 1)
    (row,) = cluster_status(session_of(lab, tmp_path / "one")).jobs
    assert where_and_why(row, "").startswith("w[0-1]; 1 pending: both workers have less than 1 core free")
    (row,) = cluster_status(session_of(lab.cancel("sweep"), tmp_path / "two")).jobs
    assert where_and_why(row, "") == "stopping on w[0-1]; cancelled"


def test_attempts_that_wait_for_different_things_are_named(tmp_path: Path) -> None:
    lab = Lab().worker("w0").worker("w1").job("j", replicas=2, cpu=16.0).schedule().unanswered("j/task-1")
    (row,) = cluster_status(session_of(lab.advance("5s"), tmp_path / "one")).jobs
    assert row.why == "task 0: dispatching"
    (row,) = cluster_status(session_of(lab.unanswered("j/task-0"), tmp_path / "two")).jobs
    assert row.why == "its worker has not confirmed the start"
