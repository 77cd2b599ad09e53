"""What a pass concludes from slices that failed, before it decides on others."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from iris_cli.core.ids import JobId
from iris_cli.core.messages.cloud import CloudState
from iris_cli.ops.jobs.change import cancel
from tests.ops.test_autoscale import LOCAL, Site


def test_a_pass_that_gives_up_a_slice_requests_no_other_one_before_the_back_off_has_ended(
    tmp_path: Path,
) -> None:
    """It would not be asked for, and expire: with a pass now and then each one would, for ever."""
    site = Site(tmp_path / "state")
    site.launch("train")
    [first] = site.autoscale().created
    owner, whole = site.books.slices[first]
    site.books.slices[first] = owner, replace(whole, hosts=whole.hosts[:1])
    site.launch("another")
    site.clock.sleep(1800)
    assert list(site.autoscale().deleted) == [first]
    assert list(site.states) == [first]
    site.clock.sleep(600)
    created = site.autoscale().created
    assert len(created) == 2
    assert set(created) <= site.books.slices.keys()


def test_slices_of_two_zones_that_are_gone_in_one_pass_are_weighed_together(tmp_path: Path) -> None:
    """No rank is ordered to stop because of another one: all are known to be gone."""
    site = Site(tmp_path / "state")
    site.group = replace(site.group, max_slices=2)
    site.launch("one")
    [first] = site.autoscale().created
    site.boots(first)
    cancel(site.session(), ["one"])
    site.launch("pair", slices=2)
    site.group = replace(site.group, template=replace(LOCAL, zone="us-west4-b"))
    [second] = site.autoscale().created
    site.boots(second)
    site.autoscale()
    assert len(site.place()) == 4
    for name in (first, second):
        site.books.turn(name, CloudState.STOPPED, "preempted")
    site.autoscale()
    cluster = site.session().view()
    assert not any(attempt.live for task in cluster.tasks_of(JobId("pair")) for attempt in task.attempts)
    log = (site.directory / "events.jsonl").read_text()
    assert "GangRoundEnded" in log
    assert "AttemptStopRequested" not in log
