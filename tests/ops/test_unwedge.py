"""`iris worker unwedge`: everything that is in the way has a name and an owner, and what iris owns is never touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import ChipHolder, SilenceKind
from iris_cli.core.model.job import JobState
from iris_cli.errors import IrisError, UnreachableError
from iris_cli.ops.views.history import history
from iris_cli.ops.workers import unwedge
from iris_cli.ops.workers.unwedge import Owner, WorkerObstacles
from iris_cli.render.as_json import document_value
from iris_cli.render.console import Output
from iris_cli.render.probes import show_wedge, wedge_document
from tests.support.fake_runner import Entry, Host, S, Site

UNKNOWN = Token("f" * 32)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """One task has ended on `w0`, one runs there."""
    made = Site(tmp_path, "w0", "w1")
    made.launch("old")
    made.cycle()
    made.hosts["w0"].exits("old")
    made.launch("now")
    made.cycle()
    assert made.hosts["w0"].running == ["now/task-0"]
    return made


def held_by(site: Site, token: Token | None, pid: int) -> Host:
    host = site.hosts["w0"]
    host.holders.append(
        ChipHolder(boot_id=host.boot_id, pid=pid, start=7, devices=("/dev/accel0",), command="x", token=token)
    )
    return host


def owners(wedge: WorkerObstacles) -> list[Owner]:
    return [each.owner for each in wedge.obstacles]


def test_everything_in_the_way_has_an_owner(site: Site) -> None:
    own, ended = site.attempt("now").token, site.attempt("old").token
    for pid, token in enumerate((own, ended, UNKNOWN, None), start=10):
        held_by(site, token, pid)
    site.hosts["w0"].tokens[UNKNOWN] = Entry(S.RUNNING)
    found = unwedge.find_obstacles(site.session(), "w0")
    assert owners(found) == [Owner.IRIS, Owner.ENDED, Owner.UNKNOWN, Owner.OTHER, Owner.UNKNOWN]
    assert [str(each.attempt) for each in found.obstacles[:2]] == [
        "now/task-0/attempt-0",
        "old/task-0/attempt-0",
    ]
    assert len(found.clearable) == 4


def test_a_look_at_who_holds_a_device_changes_nothing(site: Site) -> None:
    host = held_by(site, None, 10)
    before, seq = list(host.holders), site.cluster.seq
    unwedge.find_obstacles(site.session(), "w0")
    assert (host.holders, site.cluster.seq) == (before, seq)


def test_with_consent_all_is_stopped_but_what_iris_owns(site: Site) -> None:
    host = held_by(site, None, 10)
    held_by(site, site.attempt("now").token, 11)
    host.tokens[UNKNOWN] = Entry(S.RUNNING)
    session = site.session()
    left = unwedge.clear(session, unwedge.find_obstacles(session, "w0"))
    assert left.obstacles == ()
    assert [holder.pid for holder in host.holders] == [11]
    assert (host.running, host.tokens[UNKNOWN].state) == (["now/task-0"], S.STOPPED)


def test_who_cleared_what_stands_in_the_history_before_anything_is_stopped(site: Site) -> None:
    host = held_by(site, None, 10)
    held_by(site, site.attempt("now").token, 11)
    host.holders[0] = replace(host.holders[0], command="a" * 300)
    host.tokens[UNKNOWN] = Entry(S.RUNNING)
    host.unkillable = True
    session = site.session()
    unwedge.clear(session, unwedge.find_obstacles(session, "w0"))
    told = [entry for entry in history(session, "w0").entries if entry.type == "WorkerUnwedged"]
    assert [(entry.actor, entry.text) for entry in told] == [
        (
            "me@laptop iris test",
            f"stopping on worker w0: process 10: {'a' * 200}, attempt with token {UNKNOWN}",
        )
    ]


def test_where_nothing_may_be_stopped_nothing_goes_on_record(site: Site) -> None:
    held_by(site, site.attempt("now").token, 11)
    session = site.session()
    unwedge.clear(session, unwedge.find_obstacles(session, "w0"))
    assert "WorkerUnwedged" not in {entry.type for entry in history(session).entries}


def test_what_the_log_has_come_to_own_since_the_look_is_not_touched(site: Site) -> None:
    host = held_by(site, site.attempt("now").token, 10)
    found = unwedge.find_obstacles(site.session(), "w0")
    as_if_unknown = replace(
        found, obstacles=tuple(replace(each, owner=Owner.UNKNOWN) for each in found.obstacles)
    )
    left = unwedge.clear(site.session(), as_if_unknown)
    assert [holder.pid for holder in host.holders] == [10]
    assert left.obstacles == ()


def test_what_appeared_after_the_look_is_not_touched(site: Site) -> None:
    held_by(site, None, 10)
    session = site.session()
    found = unwedge.find_obstacles(session, "w0")
    host = held_by(site, None, 11)
    unwedge.clear(session, found)
    assert [holder.pid for holder in host.holders] == [11]


def test_what_does_not_go_is_named_after_a_while(site: Site) -> None:
    host = held_by(site, None, 10)
    host.unkillable = True
    session = site.session()
    began = site.clock.time
    left = unwedge.clear(session, unwedge.find_obstacles(session, "w0"), grace=5.0)
    assert [each.holder for each in left.obstacles] == host.holders
    assert 5.0 < site.clock.time - began < 60.0


def test_a_worker_with_attempts_that_the_log_never_saw_takes_tasks_again_when_they_are_stopped(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, "w0")
    site.hosts["w0"].tokens[UNKNOWN] = Entry(S.RUNNING)
    site.launch("one")
    site.cycle()
    assert site.cluster.workers[WorkerId("w0")].unschedulable
    assert site.state_of("one") is JobState.PENDING
    session = site.session()
    unwedge.clear(session, unwedge.find_obstacles(session, "w0"))
    site.cycle()
    assert site.state_of("one") is JobState.RUNNING


def test_of_another_machine_nothing_is_judged_by_the_log(site: Site) -> None:
    held_by(site, None, 10).reboot()
    with pytest.raises(IrisError, match="rebooted or re-created") as raised:
        unwedge.find_obstacles(site.session(), "w0")
    assert raised.value.hint == "iris worker probe w0"


def test_a_silent_worker_is_said_to_be_silent(site: Site) -> None:
    site.hosts["w0"].silence = SilenceKind.TIMEOUT
    with pytest.raises(UnreachableError, match="no answer from w0 \\(connect: timeout"):
        unwedge.find_obstacles(site.session(), "w0")


def test_the_result_is_printed_as_text_and_as_json(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    own = site.attempt("now").token
    held_by(site, own, 10)
    held_by(site, None, 11)
    site.hosts["w0"].tokens[UNKNOWN] = Entry(S.LOST)
    found = unwedge.find_obstacles(site.session(), "w0")
    show_wedge(Output(), found)
    assert capsys.readouterr().out.splitlines() == [
        "process 10 (x) holds /dev/accel0; its attempt is live; unwedge does not stop it (now/task-0/attempt-0)",
        "process 11 (x) holds /dev/accel0; not started by iris",
        f"the attempt with token {UNKNOWN} is LOST on the worker, but is not in the log",
    ]
    process = {"devices": ["/dev/accel0"], "command": "x"}
    assert document_value(wedge_document(found, None)) == {
        "worker": "w0",
        "found": [
            {"owner": "iris", "attempt": "now/task-0/attempt-0", "pid": 10, "token": own, **process},
            {"owner": "other", "attempt": None, "pid": 11, "token": None, **process},
            {"owner": "unknown", "attempt": None, "token": UNKNOWN, "state": S.LOST},
        ],
        "lock_file": "none",
        "unseen": 0,
        "left": None,
    }
