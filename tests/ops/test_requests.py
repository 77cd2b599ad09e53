"""Requests from inside tasks: once each wherever anybody is killed, answered, and before the end of who asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.events.events import AttemptEnded, EndpointRegistered, JobSubmitted
from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import TaskState
from iris_cli.errors import LockedError
from iris_cli.ops.cycle import cycle
from iris_cli.ops.cycle.reply_queue import MAX_POLLS
from tests.ops.asking import EVAL, running
from tests.support.fake_runner import Entry, Killed, S, Site


def events(site: Site, kind: type) -> list[Any]:
    found = site.session().state.read().transactions
    return [event for each in found for event in each.events if isinstance(event, kind)]


def test_a_child_job_is_submitted_placed_and_answered_in_one_cycle(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("r1", "submit", job=EVAL)
    site.cycle()
    assert task.told("r1") == {"job": "train/eval", "created": True}
    assert task.outbox == {}
    assert host.running == ["train/task-0", "train/eval/task-0"]


def test_where_nothing_is_asked_for_nothing_is_added(tmp_path: Path) -> None:
    site, host, _ = running(tmp_path)
    host.calls.clear()
    before = site.cluster.seq
    site.cycle()
    assert (host.calls, site.cluster.seq) == (["poll"], before)


def test_what_is_asked_in_order_is_done_in_order(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    task.ask("2", "cancel", job="train/eval", reason="changed my mind")
    task.ask("3", "status", job="train/eval")
    task.ask("4", "register_endpoint", name="http", port=80)
    task.ask("5", "endpoints")
    task.ask("6", "remove_endpoint", name="http")
    task.ask("7", "tasks")
    task.ask("8", "frobnicate")
    site.cycle()
    assert task.told("1") == {"job": "train/eval", "created": True}
    assert task.told("2") == {"job": "train/eval", "cancelled": True, "state": "KILLED"}
    status = task.told("3")
    assert (status["job"]["state"], status["job"]["reason"]) == ("KILLED", "cancelled")
    assert [each["state"] for each in status["tasks"]] == ["KILLED"]
    assert (status["job"]["display"], status["tasks"][0]["display"]) == ("KILLED", "KILLED")
    assert task.told("4") == {"name": "http", "port": 80}
    assert task.told("5") == {"endpoints": []}, "what only reads sees all that was decided with it"
    assert task.told("6") == {"removed": True}
    assert [each["id"] for each in task.told("7")["tasks"]] == ["train/task-0"]
    assert "must be submit or cancel" in task.told("8")


def test_endpoints_are_told_with_the_address_of_their_host(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "register_endpoint", name="http", port=80, metadata={"path": "/"})
    site.cycle()
    task.ask("2", "status")
    site.cycle()
    endpoint = {
        "task": "train/task-0",
        "name": "http",
        "address": "w0",
        "port": 80,
        "metadata": {"path": "/"},
    }
    assert task.told("2")["endpoints"] == [endpoint]
    assert task.told("2")["job"]["id"] == "train"


# Once, wherever anybody is killed


def die() -> None:
    raise Killed


@pytest.mark.parametrize("where", ["poll", "before the answer", "answer"])
def test_a_request_counts_once_if_its_cycle_is_killed_at_any_step(tmp_path: Path, where: str) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job={"command": ["true"]})
    task.ask("2", "register_endpoint", name="http", port=80)
    (host.beforehand if "before" in where else host.meanwhile)[where.split()[-1]] = die
    with pytest.raises(Killed):
        site.cycle()
    for _ in range(3):
        site.cycle()
    assert task.told("1") == {"job": "train/true-1", "created": True}
    assert [len(events(site, kind)) for kind in (JobSubmitted, EndpointRegistered)] == [2, 1]
    assert task.outbox == {}


def test_two_who_poll_at_once_submit_once(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job={"command": ["true"]})

    def another() -> None:
        site.cycle()

    host.meanwhile["poll"] = another
    site.cycle()
    assert len(events(site, JobSubmitted)) == 2
    assert task.told("1") == {"job": "train/true-1", "created": True}


def test_an_answer_that_was_not_heard_is_given_again(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.box_is_stuck = True
    task.ask("1", "submit", job=EVAL)
    site.cycle()
    task.inbox.clear()
    host.box_is_stuck = False
    site.cycle()
    assert task.told("1") == {"job": "train/eval", "created": True}
    assert len(events(site, JobSubmitted)) == 2


def test_what_is_asked_while_the_state_is_locked_is_done_later(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    with site.session().state.locked("somebody else", 0):
        session = site.session()
        session.lock_timeout = 0.0
        with pytest.raises(LockedError):
            cycle.run(session)
    site.cycle()
    assert task.told("1") == {"job": "train/eval", "created": True}


def test_what_only_reads_takes_no_lock(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    site.cycle()
    task.ask("1", "status")
    session = site.session()
    session.lock_timeout = 0.0
    session.view()
    session.has_locked = True  # it has written before
    with site.session().state.locked("somebody else", 0):
        cycle.run(session, schedule=False)
    assert task.told("1")["job"]["state"] == "RUNNING"


# Before the end of who asks


def test_what_it_asked_for_last_is_done_before_its_end_is_recorded(tmp_path: Path) -> None:
    site, host, task = running(tmp_path, replicas=2, max_task_failures=1)
    task.ask("1", "submit", job=EVAL)
    host.exits("train/task-0")
    site.cycle()
    log = [type(event).__name__ for each in site.session().state.read().transactions for event in each.events]
    assert log.index("AttemptEnded") > len(log) - 1 - log[::-1].index("JobSubmitted")
    assert site.state_of("train/eval") is JobState.PENDING or host.running


def test_a_child_of_a_job_that_ends_with_it_is_there_and_cancelled(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    host.exits("train")
    site.cycle()
    assert (site.state_of("train"), site.state_of("train/eval")) == (JobState.SUCCEEDED, JobState.KILLED)


@pytest.mark.parametrize("many", [17, 16 * MAX_POLLS + 40])
def test_an_end_waits_for_everything_that_was_asked_but_not_for_ever(tmp_path: Path, many: int) -> None:
    site, host, task = running(tmp_path, replicas=2)
    for number in range(many):
        task.ask(f"{number:05}", "register_endpoint", name="a", port=1 + number)
    task.ask("99999", "submit", job=EVAL)
    host.exits("train/task-0")
    site.cycle()
    done = len(events(site, EndpointRegistered))
    assert len(events(site, AttemptEnded)) == 1
    assert (done == many) is (many < 16 * MAX_POLLS)
    assert done >= min(many, 16 * (MAX_POLLS - 2))
    assert (JobId("train/eval") in site.cluster.jobs) is (many < 16 * MAX_POLLS)


def test_a_box_that_can_not_be_emptied_keeps_nothing_alive(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.box_is_stuck = True
    for number in range(40):
        task.ask(f"{number:05}", "status")
    host.exits("train")
    site.cycle()
    assert site.state_of("train") is JobState.SUCCEEDED
    assert len(host.calls) < 4 * MAX_POLLS


def test_a_start_that_ends_at_once_is_heard_out(tmp_path: Path) -> None:
    """The answer to the call that starts it says that it has ended, and can't say what it asks for."""
    site = Site(tmp_path, "w0")
    site.launch("quick", replicas=2, max_task_failures=1)

    def start(entry: Entry) -> None:
        entry.state, entry.exit_code, entry.ended_at = S.EXITED, 0, site.clock.now()
        if entry.name == "quick/task-0":
            entry.ask("1", "submit", job=EVAL)

    site.hosts["w0"].start = start  # type: ignore[method-assign]  # its tasks end at once
    site.cycle()
    site.cycle()
    assert JobId("quick/eval") in site.cluster.jobs
    assert site.task("quick").state is TaskState.SUCCEEDED


def test_what_is_being_stopped_is_refused_and_its_end_waits_for_nothing(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    host.unkillable = True
    session = site.session()
    with session.transaction() as draft:
        from iris_cli.core.lifecycle import jobs

        jobs.cancel(draft, JobId("train"))
    task.ask("1", "submit", job=EVAL)
    task.ask("2", "register_endpoint", name="http", port=80)
    site.cycle()
    task.state = S.RUNNING
    site.cycle(700)
    assert "is being stopped" in task.told("1")
    assert "is being stopped" in task.told("2")
    for number in range(20):
        task.ask(f"{number:03}", "submit", job=EVAL)
    task.state = S.STOPPED
    site.cycle(700)
    assert not list(site.cluster.live_attempts())
    assert list(site.cluster.jobs) == ["train"]


HOSTILE: dict[str, tuple[Callable[[Entry], None], str]] = {
    "no JSON": (lambda it: it.outbox.update(x=b"\x00\xff"), "not UTF-8"),
    "too large": (lambda it: it.outbox.update(x=b"[" * 65537), "at most 65536 bytes, not 65537"),
    "deep": (lambda it: it.outbox.update(x=b"[" * 65536), "nested deeper"),
    "a number that no computer has": (
        lambda it: it.outbox.update(
            x=b'{"v":1,"op":"submit","job":{"command":["true"],"cpu":1' + b"0" * 400 + b"}}"
        ),
        "must be a finite number",
    ),
    "another's job": (lambda it: it.ask("x", "cancel", job="other"), "train has no child job other"),
    "another's status": (lambda it: it.ask("x", "status", job="other"), "train has no child job other"),
    "another's tasks": (lambda it: it.ask("x", "tasks", job="other"), "train has no child job other"),
    "another's end": (lambda it: it.ask("x", "wait", job="other"), "train has no child job other"),
    "another's endpoints": (lambda it: it.ask("x", "endpoints", job="other"), "train has no child job other"),
    "another's logs": (lambda it: it.ask("x", "logs", task="other/task-0"), "train has no child job other"),
    "no job": (lambda it: it.ask("x", "status", job="train/none"), "train has no child job train/none"),
    "no task": (lambda it: it.ask("x", "logs", task="train/task-7"), "train has no task-7"),
    "no attempt": (lambda it: it.ask("x", "logs", task="train/task-0", attempt=7), "has no attempt 7"),
    "an escape": (lambda it: it.ask("x", "submit", job={**EVAL, "name": "\x1b[2J"}), r"\x1b[2J"),
    "the operator's secret": (
        lambda it: it.ask("x", "submit", job={**EVAL, "secrets": ["HOME"]}),
        "is not a secret",
    ),
    "the operator's file": (
        lambda it: it.ask("x", "submit", job={**EVAL, "env_file": "/etc/passwd"}),
        "not available inside a task",
    ),
    "no such accelerator": (lambda it: it.ask("x", "submit", job={**EVAL, "tpu": "v4-64"}), "not submitted"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_may_not_be_is_refused_and_changes_nothing(tmp_path: Path, name: str) -> None:
    act, words = HOSTILE[name]
    site, _, task = running(tmp_path)
    site.launch("other")
    site.cycle()
    before = site.cluster.seq
    act(task)
    site.cycle()
    assert words in task.told("x")
    assert task.told("x").isprintable()
    assert site.cluster.seq == before


def test_a_child_named_without_its_parent_is_named_in_the_hint(tmp_path: Path) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)
    task.ask("2", "status", job="eval")
    site.cycle()
    assert b"did you mean 'train/eval'?" in task.inbox["2"]


def test_a_flood_is_worked_off_bit_by_bit_and_delays_nobody(tmp_path: Path) -> None:
    site, host, task = running(tmp_path)
    for number in range(10_000):
        task.outbox[f"{number:05}"] = b"{}"
    host.calls.clear()
    site.cycle()
    assert len(task.outbox) == 10_000 - 16 * MAX_POLLS
    assert len(host.calls) <= MAX_POLLS + 1


def test_a_fault_of_ours_in_one_request_costs_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "register_endpoint", name="http", port=80)
    task.ask("2", "submit", job=EVAL)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("iris_cli.core.lifecycle.children.register_endpoint", fail)
    session = site.session()
    cycle.run(session)
    assert task.told("1") == "internal error in this request"
    assert task.told("2") == {"job": "train/eval", "created": True}
    assert len(session.faults) == 1


def test_a_fault_of_ours_in_reading_a_request_costs_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _, task = running(tmp_path)
    task.ask("1", "submit", job=EVAL)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("iris_cli.config.request_reading.read_request", fail)
    session = site.session()
    assert cycle.run(session).silent == []
    assert task.told("1") == "internal error in this request"
    assert len(session.faults) == 1


def test_an_answer_never_names_what_another_would_be_told(tmp_path: Path) -> None:
    """Each task of a job has its own requests, under the same names."""
    site, host, task = running(tmp_path, replicas=2)
    second = host.of("train/task-1")
    task.ask("1", "submit", job={**EVAL, "name": "a"})
    second.ask("1", "submit", job={**EVAL, "name": "b"})
    site.cycle()
    assert (task.told("1")["job"], second.told("1")["job"]) == ("train/a", "train/b")
    assert json.loads(task.inbox["1"])["v"] == 1
