"""Waits and logs that tasks ask for: answered when there is something to answer, and nobody is held up meanwhile."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.messages.requests import MAX_WAITS
from iris_cli.core.model.job import JobRequest, JobState
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.loop.foreground import wait_for, watch
from tests.ops.asking import EVAL, running
from tests.support.fake_runner import Entry, Host, Site


def test_a_wait_is_answered_when_the_job_is_over_and_holds_up_nothing(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    for number in range(20):
        task.ask(f"2.{number:02}", "wait", job="train/eval")
    task.ask("3", "status")
    site.cycle()
    assert sorted(task.inbox) == ["1", "3"], "those that wait make room for the others"
    site.cycle()
    assert sorted(task.inbox) == ["1", "3"]
    host.exits("train/eval")
    site.cycle()
    assert len(task.inbox) == 22
    assert task.told("2.07")["job"]["state"] == "SUCCEEDED"
    assert task.outbox == {}


def test_nobody_waits_for_the_end_that_he_is_part_of(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "wait", job="train")
    site.cycle()
    assert task.told("1") == "train can't end before this task, which is part of it"
    task.ask("2", "cancel", job="train")
    site.cycle()
    assert site.state_of("train") is JobState.KILLED, "but it may end itself"


def test_a_watch_answers_waits_after_an_end_recorded_by_another_process(
    tmp_path: Path,
) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    task.ask("2", "wait", job="train/eval")
    steps = watch(site.session(), interval=1.0, schedule=True)
    next(steps)
    next(steps)
    assert "2" not in task.inbox
    host.exits("train/eval")
    cycle.run(site.session())
    task.inbox.pop("2", None)
    task.ask("2", "wait", job="train/eval")
    next(steps)
    assert task.told("2")["job"]["state"] == "SUCCEEDED"


def test_too_many_waits_are_refused(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("0", "submit", job=EVAL)
    for number in range(MAX_WAITS + 2):
        task.ask(f"1.{number:03}", "wait", job="train/eval")
    site.cycle()
    refused = [name for name in task.inbox if f"already waiting for {MAX_WAITS} jobs" in task.told(name)]
    assert len(refused) == 2


def test_a_wait_that_was_given_up_makes_room_for_another(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("0", "submit", job=EVAL)
    steps = watch(site.session(), interval=1.0, schedule=True)
    next(steps)
    for turn in range(1, 5):
        for number in range(MAX_WAITS // 2):
            task.ask(f"{turn}.{number:03}", "wait", job="train/eval")
        next(steps)
        if turn < 4:
            task.outbox.clear()
    assert list(task.inbox) == ["0"]
    host.exits("train/eval")
    next(steps)
    waited = [f"4.{number:03}" for number in range(MAX_WAITS // 2)]
    assert {task.told(name)["job"]["state"] for name in waited} == {"SUCCEEDED"}


def test_a_wait_that_made_room_is_answered_if_its_program_still_waits(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("0", "submit", job=EVAL)
    steps = watch(site.session(), interval=1.0, schedule=True)
    waits = [f"{number:03}" for number in range(1, MAX_WAITS + 5)]
    for some in (waits[:-5], waits[-5:]):
        for name in some:
            task.ask(name, "wait", job="train/eval")
        next(steps)
    host.exits("train/eval")
    next(steps)
    next(steps)
    assert {task.told(name)["job"]["state"] for name in waits} == {"SUCCEEDED"}


@pytest.mark.parametrize("way", ["wait", "launch and wait", "watch"])
def test_every_command_that_goes_on_does_it(tmp_path: Path, way: str) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    session = site.session()
    if way == "watch":
        next(watch(session, interval=1.0, schedule=True))
    else:
        job = (
            launch(session, JobRequest(name="other", command=("true",)))
            if way == "launch and wait"
            else JobId("train")
        )
        wait_for(session, [job], timeout=0.5)
    assert task.told("1") == {"job": "train/eval", "created": True}


def two_hosts(tmp_path: Path) -> tuple[Site, Entry, Host, Entry]:
    """`train` on one host, its child on the other."""
    site, host, task = running(tmp_path, "w0", "w1", cpu=3.0)
    task.ask("0", "submit", job={**EVAL, "cpu": 3})
    site.cycle()
    site.cycle()
    other = next(each for each in site.hosts.values() if each is not host)
    return site, task, other, other.of("train/eval")


def test_logs_are_read_on_the_worker_of_the_other_task(tmp_path: Path) -> None:
    site, task, other, child = two_hosts(tmp_path)
    child.output = bytes(range(256))
    task.ask("1", "logs", task="train/eval/task-0", offset=250, limit=4)
    task.ask("2", "logs", task="train/eval/task-0", offset=-2)
    task.ask("3", "logs", task="train/task-0")
    for number in range(12):
        task.ask(f"4.{number:02}", "logs", task="train/eval/task-0", attempt=0)
    site.cycle()
    assert {**task.told("1"), "data": b64decode(task.told("1")["data"])} == {
        "offset": 250,
        "size": 256,
        "data": b"\xfa\xfb\xfc\xfd",
    }
    assert b64decode(task.told("2")["data"]) == b"\xfe\xff"
    assert task.told("3")["size"] == 0
    assert len(task.inbox) == 16
    assert other.chunks_read == 14


def test_an_attempt_that_a_task_may_still_have_is_told_from_one_that_it_never_will(tmp_path: Path) -> None:
    site, task, other, _ = two_hosts(tmp_path)
    task.ask("1", "logs", task="train/eval/task-0", attempt=7)
    site.cycle()
    assert "train/eval/task-0 has no attempt 7 yet" in task.told("1")
    assert b"ask again later" in task.inbox["1"]
    other.exits("train/eval")
    site.cycle()
    task.ask("2", "logs", task="train/eval/task-0", attempt=7)
    site.cycle()
    assert task.told("2") == "train/eval/task-0 has no attempt 7"
    assert b"the last attempt is 0" in task.inbox["2"]


def test_long_pieces_are_read_once_each_though_they_need_several_answers(tmp_path: Path) -> None:
    site, task, other, child = two_hosts(tmp_path)
    child.output = b"x" * (1 << 20)
    for number in range(12):
        task.ask(f"{number:02}", "logs", task="train/eval/task-0", offset=number << 16)
    site.cycle()
    assert [len(b64decode(task.told(f"{number:02}")["data"])) for number in range(12)] == [1 << 16] * 12
    assert other.chunks_read == 12


@pytest.mark.parametrize(
    ("kind", "meanwhile", "words"),
    [
        (SilenceKind.UNREACHABLE, "silent", "the worker is suspect: connect"),
        (SilenceKind.AUTH, "silent", "the worker is auth_failed: authentication"),
        (SilenceKind.UNREACHABLE, "left alone", "the worker is suspect: connect"),
    ],
)
def test_logs_of_a_silent_worker_are_refused_in_words(
    tmp_path: Path, kind: SilenceKind, meanwhile: str, words: str
) -> None:
    site, task, other, _ = two_hosts(tmp_path)
    other.silence = kind
    if meanwhile == "left alone":
        site.cycle()
    task.ask("1", "logs", task="train/eval/task-0")
    site.cycle()
    assert f"can't read the logs of train/eval/task-0: {words}" in task.told("1")
