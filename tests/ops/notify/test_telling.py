"""Those who are to be told are told: by a real command, by a real server, and whatever these do no cycle waits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import Notify
from iris_cli.core.ids import JobId
from iris_cli.core.lifecycle.submit import submit
from iris_cli.core.model.job import JobRequest
from iris_cli.core.model.limits import Limits
from iris_cli.ops import notify
from iris_cli.ops.checks.findings import Level
from iris_cli.ops.cycle import cycle
from iris_cli.ops.doctor import check_notify
from iris_cli.ops.jobs.change import cancel
from iris_cli.ops.notify import Command
from iris_cli.ops.session import Session
from iris_cli.ops.views.view import load_view
from tests.ops.notify.processes import number_in, until_gone
from tests.support.fake_runner import Site
from tests.support.listener import SECRET, Listener

TELL = 'echo "$IRIS_EVENT $IRIS_JOB_ID $IRIS_STATE $IRIS_REASON" >>told'


class Lab(Site):
    """A site with somebody to tell."""

    notify = Notify(command=("sh", "-c", TELL))

    def session(self) -> Session:
        session = super().session()
        session.config = replace(session.config, notify=self.notify)
        return session

    def tell(self, seconds: float = 0.0) -> list[str]:
        """One cycle and all that it tells; what the command wrote so far."""
        self.cycle(seconds)
        notify.finish()
        return self.told

    @property
    def told(self) -> list[str]:
        path = self._path / "told"
        return path.read_text().splitlines() if path.exists() else []

    def cancel(self, *jobs: str) -> None:
        cancel(self.session(), [JobId(job) for job in jobs])

    def trouble(self, *, runs_cycles: bool = True) -> str:
        return " ".join(load_view(self.session(), runs_cycles=runs_cycles).messages)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    site = Lab(tmp_path, "w0", "w1")
    yield site
    notify.finish(at_once=True)


def test_the_end_of_each_job_is_told_once_with_its_state_and_its_reason(lab: Lab) -> None:
    lab.tell()
    lab.launch("good", cpu=1.0)
    lab.launch("bad", cpu=1.0)
    assert lab.tell() == []
    lab.hosts["w0"].exits("good") if "good/task-0" in lab.hosts["w0"].running else lab.hosts["w1"].exits(
        "good"
    )
    for host in lab.hosts.values():
        if "bad/task-0" in host.running:
            host.exits("bad", 3)
    assert lab.tell() == ["job_ended good SUCCEEDED ok", "job_ended bad FAILED user_error: exit 3"]
    assert lab.tell(60.0) == lab.told[:2]


def test_what_was_over_before_anybody_was_to_be_told_is_never_told(lab: Lab) -> None:
    lab.notify = Notify()
    lab.tell()
    lab.launch("old")
    lab.cancel("old")
    lab.notify = Lab.notify
    lab.launch("new")
    assert lab.tell() == []
    lab.cancel("new")
    assert lab.tell() == ["job_ended new KILLED cancelled"]


def test_what_happened_while_nobody_was_to_be_told_is_never_told(lab: Lab) -> None:
    lab.tell()
    lab.launch("meanwhile")
    lab.tell()
    lab.notify = Notify()
    lab.cancel("meanwhile")
    lab.tell()
    lab.notify = Lab.notify
    assert lab.tell() == []


def test_a_gang_that_waits_too_long_is_told_with_the_reason(lab: Lab) -> None:
    lab.limits = Limits(gang_reserve_after=120.0)
    lab.tell()
    lab.launch("filler", cpu=3.0)
    lab.tell()
    lab.gang("gang", 2)
    assert lab.tell() == []
    [line] = lab.tell(121.0)
    assert line.startswith("gang_waits gang PENDING the only rack group ")
    assert line.endswith("; pending for 2m (gang_reserve_after: 2m)")
    assert lab.tell(60.0) == [line]


def test_a_gang_that_waits_for_another_job_is_not_told_before_it_waits_for_workers(lab: Lab) -> None:
    lab.limits = Limits(gang_reserve_after=120.0)
    lab.tell()
    lab.launch("first", cpu=3.0)
    lab.launch("filler", cpu=3.0)
    lab.gang("gang", 2, after=("first",))
    lab.tell()
    assert lab.tell(121.0) == []
    next(host for host in lab.hosts.values() if "first/task-0" in host.running).exits("first")
    assert lab.tell(10.0) == ["job_ended first SUCCEEDED ok"]
    assert lab.tell(110.0) == lab.told[:1]
    assert [line.split()[:2] for line in lab.tell(20.0)[1:]] == [["gang_waits", "gang"]]


def test_a_fault_of_ours_is_shown_like_any_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(Command, "run", run)
    lab.tell()
    lab.launch("one")
    lab.cancel("one")
    lab.tell()
    assert lab.trouble().startswith(
        "notify: internal error (ZeroDivisionError); please report it; 1 notice to"
    )


def test_cycles_that_stood_still_are_told_by_the_first_one_that_runs_again(lab: Lab) -> None:
    lab.tell()
    lab.launch("open", cpu=1.0)
    assert lab.tell() == []
    assert lab.tell(3600.0) == ["scheduler_stopped   cycles run again after a gap of 1h"]


def test_a_thousand_jobs_that_end_at_once_are_each_told_in_as_many_cycles_as_it_takes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def run(_: Command, variables: Mapping[str, str], cut: Event) -> str:
        told.append(variables["IRIS_JOB_ID"])
        lab.clock.time += 0.05
        return ""

    monkeypatch.setattr(Command, "run", run)
    lab.tell()
    names = [f"j{number}" for number in range(1000)]
    with lab.session().transaction() as draft:
        for name in names:
            submit(draft, JobRequest(name=name, command=("true",)), (), lab.limits)
    lab.tell()
    lab.cancel(*names)
    cycles = 0
    while len(told) < len(names):
        lab.clock.time += 1.0
        cycle.run(lab.session())
        notify.finish()
        cycles += 1
    assert told == names
    assert cycles == len(names) * 0.05 / notify.BUDGET
    lab.tell(1.0)
    assert told == names


def test_a_server_is_posted_what_happened_as_json(lab: Lab, listener: Listener) -> None:
    lab.notify = Notify(webhook=listener.url)
    lab.tell()
    lab.launch("one")
    lab.cancel("one")
    lab.tell()
    [said] = listener.posted
    assert said.pop("at") == lab.clock.now()
    assert said == {
        "schema_version": 1,
        "id": "job_ended/one",
        "event": "job_ended",
        "cluster": "site",
        "job_id": "one",
        "state": "KILLED",
        "reason": "cancelled",
        "text": "site: job one KILLED: cancelled",
    }


def test_a_server_that_fails_is_tried_again_later_and_meanwhile_status_and_doctor_say_so(
    lab: Lab, listener: Listener
) -> None:
    lab.notify = Notify(webhook=listener.url)
    lab.tell()
    for name in ("one", "two"):
        lab.launch(name)
    lab.cancel("one", "two")
    listener.answers = [500, 500]
    lab.tell()
    assert lab.trouble() == "notify: the webhook answered 500; 2 notices to send, retried in 10s"
    assert lab.trouble(runs_cycles=False).endswith("; 2 notices to send, no cycles are running")
    lab.tell(5.0)
    assert len(listener.paths) == 1  # it is left alone
    lab.tell(6.0)
    assert (
        lab.trouble()
        == "notify: the webhook answered 500 (2 times in a row); 2 notices to send, retried in 20s"
    )
    [finding] = check_notify(lab.session(), has_next_cycle=True)
    assert (finding.level, finding.subject) == (Level.WARN, "notify")
    lab.tell(21.0)
    assert sorted(each["job_id"] for each in listener.posted) == ["one", "two"]
    assert lab.trouble() == ""
    [finding] = check_notify(lab.session(), has_next_cycle=True)
    assert (finding.level, finding.text) == (Level.OK, "last sent 0s ago")


def test_a_command_that_fails_keeps_no_server_from_being_told(lab: Lab, listener: Listener) -> None:
    lab.notify = Notify(command=("sh", "-c", f"echo {listener.url} is bad; exit 3"), webhook=listener.url)
    lab.tell()
    lab.launch("one")
    lab.cancel("one")
    lab.tell()
    assert [each["job_id"] for each in listener.posted] == ["one"]
    assert "the command failed with exit 3: http://127.0.0.1:" in lab.trouble()
    assert SECRET not in lab.trouble()


def test_while_somebody_is_telling_nobody_else_does_and_nothing_is_lost(lab: Lab) -> None:
    lab.tell()
    lab.launch("one")
    lab.cancel("one")
    lock = lab.session().state.notices.lock()
    assert lock is not None
    assert lab.tell() == []
    os.close(lock)
    assert lab.tell() == ["job_ended one KILLED cancelled"]


def test_an_unreadable_notice_state_is_replaced(lab: Lab) -> None:
    lab.tell()
    lab.launch("one")
    lab.tell()
    (lab._path / "state" / "notices.json").write_text('{"jobs":')
    assert lab.tell() == []
    lab.cancel("one")
    assert lab.tell() == ["job_ended one KILLED cancelled"]


def test_where_nothing_can_be_written_down_nothing_is_told_again_and_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.tell()
    lab.launch("one")
    lab.cancel("one")
    monkeypatch.setattr("iris_cli.journal.files.notices.replace_file", _full)
    assert lab.tell() == []
    monkeypatch.undo()
    assert lab.tell() == ["job_ended one KILLED cancelled"]


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_cycle_ends_while_a_notification_hangs_and_the_next_process_sends_it_again(lab: Lab) -> None:
    lab.tell()
    lab.launch("one")
    lab.cancel("one")
    lab.notify = Notify(command=("sh", "-c", "echo $$ >pid; sleep 1000"))
    lab.cycle()  # comes back
    pid = number_in(lab._path / "pid")
    notify.finish(at_once=True)
    until_gone(pid)
    assert lab.trouble() == ""  # it was not its fault
    lab.notify = Lab.notify
    assert lab.tell() == ["job_ended one KILLED cancelled"]
