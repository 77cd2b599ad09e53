"""Slices of Google's on demand, end to end: the official client, an emulator of the API, hosts on which gangs run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.model.job import JobState
from tests.support.cloud_site import CENTRAL, WEST, CloudSite, cloud_site
from tests.support.tpu_emulator.settings import Fault
from tests.support.waiting import until


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudSite]:
    with cloud_site(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def gangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudSite]:
    """Slices of two VMs; those of the west are asked for by queued resources."""
    with cloud_site(tmp_path, monkeypatch, tpu="v4-16", queued=True) as made:
        yield made


PARENT = """
echo parent in $WHERE
iris launch --name stays --tpu v4-8 -- sh -c 'echo child in $WHERE' &&
iris launch --name goes --tpu v4-8 -c region=us-west4 -- sh -c 'echo child in $WHERE' &&
iris wait train/stays train/goes
"""


@pytest.mark.soak
def test_each_region_gets_the_slices_of_its_jobs_and_children_stay_with_their_parent_unless_they_say_otherwise(
    site: CloudSite,
) -> None:
    there = (parse_constraint("region=us-central2"),)
    site.launch("train", "sh", "-c", PARENT, tpu="v4-8", constraints=there)
    assert site.round() == ["central"]
    jobs = ("train", "train/stays", "train/goes")
    site.until(lambda: site.ended(*jobs))
    assert [site.desk.state(job) for job in jobs] == [JobState.SUCCEEDED] * 3
    assert site.log_of("train").splitlines()[0] == "parent in central"
    assert [site.log_of(job) for job in jobs[1:]] == ["child in central\n", "child in west\n"]
    zones = sorted(each.zone for each in site.cloud.books.made())
    assert zones == [CENTRAL, CENTRAL, WEST]
    site.empty_and_compare()


@pytest.mark.soak
def test_a_preempted_slice_is_replaced_and_its_gang_goes_again_whole(gangs: CloudSite) -> None:
    script = 'echo rank $IRIS_TASK_INDEX on $IRIS_WORKER_ID; test "$IRIS_ATTEMPT" = 0 && sleep 600; exit 0'
    gangs.launch("train", "sh", "-c", script, tpu="v4-16")
    gangs.until(lambda: gangs.desk.state("train") is JobState.RUNNING)
    [first] = gangs.made()
    gangs.cloud.preempt(first)
    gangs.until(lambda: gangs.ended("train"))
    assert gangs.desk.state("train") is JobState.SUCCEEDED
    [_, second] = gangs.made()
    for rank in (0, 1):
        tries = gangs.desk.attempts("train", rank)
        assert [attempt.worker for attempt in tries] == [f"{first}-{rank}", f"{second}-{rank}"]
        assert gangs.log_of("train", rank) == f"rank {rank} on {second}-{rank}\n"
    requests = {each.name: each.gone_at is None for each in gangs.cloud.books.made("queuedResource")}
    assert requests == {first: False, second: True}, "what was preempted eats quota until it is deleted"
    gangs.empty_and_compare()


@pytest.mark.soak
def test_without_quota_a_group_backs_off_and_the_next_one_serves(site: CloudSite) -> None:
    site.cloud.settings.quota = {WEST: 0}
    site.launch("first", "sh", "-c", "echo in $WHERE", tpu="v4-8")
    assert site.round() == ["west"]
    assert site.round() == ["central"]
    west = site.desk.cluster.scale_groups["west"]
    assert "Quota limit" in west.error
    assert west.backoff_until > site.desk.clock.now() + 240, "quota takes longer than other trouble"
    site.until(lambda: site.ended("first"))
    assert site.log_of("first") == "in central\n"
    site.cloud.settings.quota = {}
    site.later(3600)
    site.launch(
        "second", "sh", "-c", "echo in $WHERE", tpu="v4-8", constraints=(parse_constraint("region=us-west4"),)
    )
    site.until(lambda: site.ended("second"))
    assert site.log_of("second") == "in west\n"
    site.empty_and_compare()


@pytest.mark.soak
def test_a_slice_that_never_gets_ready_is_deleted_and_another_group_serves(site: CloudSite) -> None:
    site.cloud.settings.stuck = [WEST]
    site.launch("train", "sh", "-c", "echo in $WHERE", tpu="v4-8")
    assert [site.round(), site.round()] == [["west"], []], "what is being made keeps its demand"
    [stuck] = site.made()
    site.later(1801)
    site.until(lambda: site.ended("train"))
    assert site.log_of("train") == "in central\n"
    assert stuck not in site.slices()
    site.empty_and_compare()


def calls(site: CloudSite, kind: str) -> int:
    return sum(call.answer == kind for call in site.cloud.books.calls)


def kill_in_the_call(site: CloudSite, method: str, kind: str) -> None:
    """A process of its own that is killed while it waits for an answer; it was heard if `kind` is `stall`."""
    before = calls(site, kind)
    site.cloud.faults.append(Fault(kind=kind, method=method))
    process = site.iris("autoscale", "--once")
    try:
        until(lambda: calls(site, kind) > before or process.poll() is not None)
    finally:
        process.kill()
        _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said.decode()


def test_killed_while_it_asks_nothing_leaks_and_nothing_is_made_twice(site: CloudSite) -> None:
    site.launch("train", "true", tpu="v4-8")
    for kind, made in (("hang", 0), ("stall", 1)):
        kill_in_the_call(site, "POST", kind)
        assert len(site.made()) == made
    site.until(lambda: site.ended("train"))
    [name] = site.made()
    site.cloud.preempt(name)
    for kind, left in (("hang", 1), ("stall", 0)):
        kill_in_the_call(site, "DELETE", kind)
        assert len(site.cloud.books.left()) == left
    site.empty_and_compare()
    assert site.made() == [name]
