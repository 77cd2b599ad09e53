"""A gang's verdict waits for a silent host: that host is asked often enough to be heard in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.job import JobState
from tests.support.fake_runner import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A gang of two that runs."""
    made = Site(tmp_path, "w0", "w1")
    made.gang("train", 2)
    made.run(3)
    assert made.hosts["w1"].running == ["train/task-1"]
    return made


def fall_silent(site: Site, kind: SilenceKind = SilenceKind.TIMEOUT, *, cycles: int = 0) -> None:
    """`w1` says nothing for so many cycles, then its peer dies of that."""
    site.hosts["w1"].silence = kind
    for _ in range(cycles):
        site.cycle(5)
    site.hosts["w0"].exits("train/task-0", 1)
    site.cycle()
    assert not site.state_of("train").terminal


@pytest.mark.parametrize("cycles", [0, 33])
def test_a_host_that_was_rebooted_late_in_the_wait_is_to_blame(site: Site, cycles: int) -> None:
    fall_silent(site, cycles=cycles)
    for _ in range(9):
        site.cycle(5)
    site.hosts["w1"].silence = None
    site.hosts["w1"].reboot()
    for _ in range(4):
        site.cycle(5)
    job = site.cluster.jobs[JobId("train")]
    assert (job.preempted_rounds, job.failed_rounds) == (1, 0)
    assert not site.state_of("train").terminal


def test_a_host_that_stays_silent_is_asked_every_ten_seconds_until_the_verdict_and_rarely_after(
    site: Site,
) -> None:
    fall_silent(site)
    calls = site.hosts["w1"].calls
    before = len(calls)
    for _ in range(12):
        site.cycle(5)
    assert site.state_of("train") is JobState.FAILED
    during = len(calls)
    for _ in range(12):
        site.cycle(5)
    assert during - before >= 5
    assert len(calls) - during <= 1


def test_a_host_that_refuses_our_key_is_not_asked_more_often_for_it(site: Site) -> None:
    fall_silent(site, SilenceKind.AUTH)
    before = len(site.hosts["w1"].calls)
    for _ in range(11):
        site.cycle(5)
    assert len(site.hosts["w1"].calls) - before == 2
