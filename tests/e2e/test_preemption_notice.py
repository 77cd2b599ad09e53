"""A TPU VM whose metadata server has announced its end, while a task on it fails: on real SSH servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

Lab = Callable[..., list[SshHost]]
Metadata = tuple[str, dict[str, str]]

SPOT = ("--tpu", "v4-16", "-c", "preemptible=true", "--grace", "1s")
FALLS = "case $IRIS_TASK_INDEX in 0) exec sleep 1000 ;; 1) echo saving; kill -s TERM $$ ;; esac"
"""Rank 1 gets SIGTERM, as at the shutdown of a VM."""

ANNOUNCED = "the metadata server announced that the VM is preempted"


@pytest.fixture
def site(ssh_lab: Lab, tmp_path: Path, metadata: Metadata) -> Site:
    """Two slices of spot VMs. Every VM is told that it is preempted, and asks only when a task on it fails."""
    address, said = metadata
    said |= {"preempted": "TRUE", "scheduling/preemptible": "TRUE"}
    hosts = ssh_lab(4, env={"GCE_METADATA_HOST": address})
    site = Site(tmp_path, hosts)
    site.write_config({"doomed": hosts[:2], "spare": hosts[2:]}, tpu="v4-16")
    site.iris("schedule", "--once")
    return site


def test_a_gang_moves_to_another_slice_which_the_next_one_waits_for_until_the_card_proves_its_last_preemption(
    site: Site,
) -> None:
    """The next one does not take the slice that the first one left."""
    over = site.directory / "over"
    script = f"[ $IRIS_ATTEMPT = 0 ] || until [ -e {over} ]; do sleep 0.1; done; {FALLS}"
    budget = ("--max-retries-preemption", "1")
    site.iris("launch", "--name", "train", *SPOT, *budget, "--", "sh", "-c", script)
    site.until(lambda: {task["worker"] for task in site.job("train")["tasks"]} == {"spare-0", "spare-1"})
    history = site.iris("history", "train", env={"COLUMNS": "200"}).out
    assert "train/task-1/attempt-0 ended: VM preempted, exit 143" in history
    assert "(chose spare: doomed cooling down)" in history
    assert "after rank 1 ended: VM preempted, exit 143" in site.iris("status", "train").out
    assert "its VM is being preempted" in site.iris("worker", "show", "doomed-1").out

    site.iris("launch", "--name", "next", *SPOT, "--", "true")
    why = site.iris("why", "next").out
    assert "v4-16 slices is cooling down (worker doomed-1: " in why
    over.touch()
    site.until(lambda: site.job("train")["state"] == "FAILED")
    job = site.job("train")
    card = job["failure"]
    assert (card["task"], card["cause"]) == ("train/task-1", "VM preempted, exit 143")
    # Not the others: the kernel log of the machine may show a process of another test killed in that time.
    proven = [fact for fact in card["facts"] if fact["proven"]]
    assert proven == [{"kind": "preempted", "proven": True, "text": ANNOUNCED}]
    assert f"proven {ANNOUNCED}" in " ".join(site.iris("status", "train").out.split())
    assert [task["reason"] for task in job["tasks"]] == ["sibling", "preempted"]
    rounds = [event for event in site.events() if event["type"] == "GangRoundEnded"]
    assert [(each["job"], each["reason"]) for each in rounds] == [("train", "preempted")] * 2
    assert site.job("next")["tasks"][0]["attempts"] == []


@pytest.mark.soak
def test_a_set_up_that_fails_on_a_doomed_vm_is_not_charged(site: Site) -> None:
    """Neither rank has started: the gang waits for the other slice, and its budget for failures is untouched."""
    setup = "case $IRIS_WORKER_ID in doomed-1) exit 1 ;; esac"
    site.iris("launch", "--name", "train", *SPOT, "--setup", setup, "--", "true")
    site.until(lambda: site.job("train")["state"] == "SUCCEEDED")
    assert {task["worker"] for task in site.job("train")["tasks"]} == {"spare-0", "spare-1"}
    failed = [event for event in site.events() if event["type"] == "TaskDispatchFailed"]
    assert [(each["task"], each["error"]) for each in failed] == [
        ("train/task-1", "its VM is being preempted")
    ]
