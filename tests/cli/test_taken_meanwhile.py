"""Somebody else takes the lock in the middle of a command, and keeps it: what was done by then is not kept secret."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import JobState
from iris_cli.errors import ExitCode
from tests.cli.test_disk_faults import CLOCK, CONFIG, JOB, Site
from tests.support.desk import Interrupted
from tests.support.fake_runner import Host
from tests.support.json_output import checked


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Two workers, and a job that runs. Who waits for the lock again does so for a moment only."""
    monkeypatch.delenv("IRIS_STATE_DIR", raising=False)
    monkeypatch.setattr("iris_cli.ops.session.LOCK_TIMEOUT", 0.01)
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    site = Site(tmp_path, {name: Host(name, CLOCK.now) for name in ("w0", "w1")})
    assert site.iris("launch", "--name", "runs", *JOB) == ExitCode.OK
    return site


@contextmanager
def taken_during(site: Site, call: str) -> Iterator[None]:
    """Somebody holds the lock from the first such call on."""
    held = os.open(site.path / "state" / "lock", os.O_RDWR)
    for host in site.hosts.values():
        host.meanwhile[call] = lambda: fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(held)
        for host in site.hosts.values():
            host.meanwhile.clear()


def test_that_an_answer_can_not_be_written_down_is_a_failure_also_of_who_waits_for_nobody(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.hosts["w0"].exits("runs")
    CLOCK.ahead += 60
    with taken_during(site, "poll"):
        assert site.iris("--lock-timeout", "0", "schedule", "--once") == ExitCode.LOCKED
        assert "is locked by" in capsys.readouterr().err
        assert site.iris("--lock-timeout", "0", "schedule", "--once") == ExitCode.OK
        assert "busy: " in capsys.readouterr().err
        assert site.iris("--json", "--lock-timeout", "0", "schedule", "--once") == ExitCode.OK
        out, err = capsys.readouterr()
        [document] = checked("iris schedule", out)
        assert (list(document), err) == (["schema_version", "busy"], "")
        assert "is locked by" in document["busy"]
    assert site.iris("--lock-timeout", "0", "schedule", "--once") == ExitCode.OK
    assert site.cluster.job_state(JobId("runs")) is JobState.SUCCEEDED


def test_a_schedule_that_goes_on_and_on_tries_again_later(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else nothing is scheduled from that moment on, all night."""
    site.hosts["w0"].exits("runs")
    CLOCK.ahead += 60
    states: list[JobState] = []

    def then() -> None:
        if states:
            raise KeyboardInterrupt
        states.append(site.cluster.job_state(JobId("runs")))
        nobody_else.close()

    with ExitStack() as nobody_else:
        nobody_else.enter_context(taken_during(site, "poll"))
        words = ("--lock-timeout", "0.01", "schedule", "--interval", "5")
        assert site.iris(*words, clock=Interrupted(then, CLOCK.ahead)) == ExitCode.INTERRUPTED
    assert "is locked by" in capsys.readouterr().err
    assert states == [JobState.RUNNING]
    assert site.cluster.job_state(JobId("runs")) is JobState.SUCCEEDED


def test_a_schedule_that_had_nothing_to_write_so_far_tries_again_later_too(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.hosts["w0"].exits("runs")
    CLOCK.ahead += 60
    assert site.iris("schedule", "--once") == ExitCode.OK
    held = os.open(site.path / "state" / "lock", os.O_RDWR)

    def takes_it() -> None:
        assert site.iris("launch", "--no-schedule", "--name", "late", *JOB) == ExitCode.OK
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def lets_it_go() -> None:
        fcntl.flock(held, fcntl.LOCK_UN)

    def gives_up() -> None:
        raise KeyboardInterrupt

    meanwhile = iter([takes_it, lets_it_go, gives_up])
    clock = Interrupted(lambda: next(meanwhile)(), CLOCK.ahead)
    try:
        words = ("--lock-timeout", "0.01", "schedule", "--interval", "5")
        assert site.iris(*words, clock=clock) == ExitCode.INTERRUPTED
    finally:
        os.close(held)
    assert capsys.readouterr().err.count("is locked by") == 1
    assert site.cluster.job_state(JobId("late")) is JobState.RUNNING


@pytest.mark.parametrize("stays", [(), ("--wait",), ("--follow",)])
def test_a_launch_whose_cycle_fails_says_what_the_job_is_called_that_it_has_submitted(
    site: Site, stays: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--json", "--lock-timeout", "0", "launch", *stays, "--name", "job", *JOB)
    with taken_during(site, "poll"):
        CLOCK.ahead += 60
        assert site.iris(*words) == ExitCode.LOCKED
    said = capsys.readouterr()
    assert json.loads(said.out)["job"] == "job"
    assert site.cluster.job_state(JobId("job")) is JobState.PENDING


def test_a_cancel_that_is_interrupted_while_it_waits_names_what_it_cancelled(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def gives_up() -> None:
        raise KeyboardInterrupt

    site.hosts["w0"].unkillable = True
    site.hosts["w0"].meanwhile["poll"] = gives_up
    assert site.iris("cancel", "runs", "--wait") == ExitCode.INTERRUPTED
    captured = capsys.readouterr()
    assert captured.out == "cancelled runs\n"
    assert "1 attempt is being stopped on w0" in captured.err
    assert site.cluster.job_state(JobId("runs")) is JobState.KILLED
