"""Old output is removed beside what a worker is asked anyway, or once a day; and `iris logs` says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.ops.views.history import history
from tests.support.fake_runner import Host, Site

DAY = 86400.0


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A worker on which a task has ended."""
    site = Site(tmp_path, "w")
    site.launch("train")
    site.cycle()
    site.hosts["w"].exits("train")
    site.cycle(15)
    return site


def calls(host: Host) -> list[str]:
    """What it was asked since the last time."""
    made = list(host.calls)
    host.calls.clear()
    return made


def test_an_idle_worker_is_asked_when_something_is_due_and_then_left_alone(site: Site) -> None:
    host = site.hosts["w"]
    calls(host)
    site.cycle(13 * DAY)
    assert calls(host) == []
    site.cycle(DAY)
    assert calls(host) == ["poll", "reap"]
    assert host.reaped == [site.attempt("train").token]
    assert site.attempt("train").reaped_at is not None
    for _ in range(3):
        site.cycle(DAY)
    assert calls(host) == []


def test_what_cannot_be_removed_yet_is_asked_for_once_a_day(site: Site) -> None:
    host = site.hosts["w"]
    host.busy_files.add(site.attempt("train").token)
    site.cycle(14 * DAY)
    calls(host)
    for _ in range(23):
        site.cycle(3600)
    assert calls(host) == []
    host.busy_files.clear()
    site.cycle(3600)
    assert calls(host) == ["poll", "reap"]
    assert site.attempt("train").reaped_at is not None


def test_a_worker_that_runs_something_is_asked_behind_its_poll_and_nothing_of_that_is_touched(
    site: Site,
) -> None:
    host = site.hosts["w"]
    site.launch("serve")
    site.cycle()
    calls(host)
    site.cycle(14 * DAY)
    assert calls(host) == ["poll", "reap"]
    assert host.reaped == [site.attempt("train").token]
    site.cycle(30 * DAY)
    assert host.running == ["serve/task-0"]
    assert calls(host) == ["poll"]


def test_after_this_machines_clock_was_set_ahead_nothing_is_removed(site: Site) -> None:
    site.hosts["w"].clock_ahead = -400 * DAY
    for _ in range(3):
        site.cycle(400 * DAY / 3)
    assert site.attempt("train").reaped_at is None


def test_nothing_is_removed_after_an_answer_without_a_clock(site: Site) -> None:
    host = site.hosts["w"]
    site.launch("serve")
    site.cycle()
    now = site.clock.time + 14 * DAY
    host.clock_ahead = -now
    calls(host)
    site.cycle(14 * DAY)
    assert calls(host) == ["poll"]
    host.clock_ahead = 0.0
    site.cycle()
    assert calls(host) == ["poll", "reap"]


def test_with_reap_after_0_nothing_is_ever_removed(tmp_path: Path) -> None:
    site = Site(tmp_path, "w", limits=Limits(reap_after=0))
    site.launch("train")
    site.cycle()
    site.hosts["w"].exits("train")
    site.cycle(15)
    calls(site.hosts["w"])
    site.cycle(5000 * DAY)
    assert calls(site.hosts["w"]) == []


def test_silence_there_is_silence_and_is_not_asked_for_again_at_once(site: Site) -> None:
    host = site.hosts["w"]

    def fall_silent() -> None:
        host.silence = SilenceKind.TIMEOUT
        host.sent = True

    host.meanwhile["poll"] = fall_silent
    cluster = site.cycle(14 * DAY)
    assert cluster.workers[next(iter(cluster.workers))].condition is WorkerCondition.SUSPECT
    host.silence = None
    site.cycle(600)
    calls(host)
    site.cycle(600)
    assert calls(host) == []
    assert site.attempt("train").reaped_at is None
    site.cycle(DAY)
    assert calls(host) == ["poll", "reap"]
    assert site.attempt("train").reaped_at is not None


def test_a_host_that_was_re_created_while_it_was_asked_tells_nothing_of_the_old_one(site: Site) -> None:
    host = site.hosts["w"]
    host.meanwhile["poll"] = host.reboot
    site.cycle(14 * DAY)
    assert site.attempt("train").reaped_at is None


def test_the_history_of_a_job_says_that_its_output_was_removed(site: Site) -> None:
    site.cycle(14 * DAY)
    for subject in ("train", "train/task-0", "w", None):
        entries = history(site.session(), subject).entries
        assert entries[-1].text == "output of train/task-0/attempt-0 removed from worker w"
