"""A log that is compacted while a gang runs and is watched, on real SSH servers; and what it leaves is removed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

TPU = ("--tpu", "v4-16")


@pytest.fixture
def site(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Site:
    """One slice `a` of two hosts."""
    hosts = ssh_lab(2)
    directory = tmp_path / "operator"
    directory.mkdir()
    site = Site(directory, hosts)
    site.write_config({"a": hosts}, tpu="v4-16")
    return site


def exported(site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.iris("log", "export").out.splitlines()]


def test_compaction_in_the_middle_of_a_watched_gang_changes_nothing_for_anybody(site: Site) -> None:
    gate = site.directory / "gate"
    wait = f"echo rank $IRIS_TASK_INDEX; while [ ! -e {gate} ]; do sleep 0.1; done"
    site.iris("launch", "--name", "train", *TPU, "--", "sh", "-c", wait)
    watching = site.start("watch", "--schedule", "--json", "--interval", "0.3")
    try:
        site.until(lambda: site.job("train")["state"] == "RUNNING", cycles=False)
        assert site.iris("log", "compact", "--json").json()["compacted"]
        site.iris("launch", "--name", "next", *TPU, "--", "sh", "-c", "exit 3")
        site.iris("log", "compact")
        gate.touch()
        site.iris("wait", "train")
        site.until(lambda: site.job("next")["state"] == "FAILED", cycles=False)
        site.iris("log", "compact")
        for name in (
            "last",
            "end",
        ):  # a watcher that has seen the end of the second one has shown all events before the first one's
            site.iris("launch", "--name", name, *TPU, "--", "true")
            site.until(lambda name=name: site.job(name)["state"] == "SUCCEEDED", cycles=False)  # type: ignore[misc]  # the default binds it
    finally:
        watching.send_signal(signal.SIGINT)
        told, _ = watching.communicate(timeout=PATIENCE)
    assert site.job("train")["state"] == "SUCCEEDED"
    check_the_past(site)
    seen = [json.loads(line) for line in told.decode().splitlines()]
    whole = [(row["seq"], row["type"]) for row in exported(site)]
    shown = [(each["seq"], each["type"]) for each in seen]
    assert shown == [each for each in whole if shown[0][0] <= each[0] <= shown[-1][0]]
    assert "LogCompacted" in {kind for _, kind in shown}


def check_the_past(site: Site) -> None:
    """Archive and log together have everything, from the first event to the last one."""
    verdict = site.iris("log", "verify", "--json").json()
    assert (verdict["ok"], verdict["segments"]) == (True, 3)
    rows = exported(site)
    assert sorted({row["seq"] for row in rows}) == list(range(1, verdict["records"] + 1))
    history = site.iris("history", "--all", "--limit", "0", "--json").json()["entries"]
    assert [(each["seq"], each["type"]) for each in history] == [(row["seq"], row["type"]) for row in rows]
    types = [row["type"] for row in rows]
    assert (types[0], types.count("LogCompacted")) == ("ClusterCreated", 3)
    ended = {row["task"]: row["event"]["state"] for row in rows if row["type"] == "TaskEnded"}
    assert ended["train/task-0"] == ended["train/task-1"] == "SUCCEEDED"
    running = next(row for row in rows if row["type"] == "TaskRunning")
    then = site.iris("status", "train", "--at", running["at"], "--json").json()
    assert then["state"] == "RUNNING"
    assert {row["worker"] for row in rows if row["type"] == "AttemptEnded"} == {"a-0", "a-1"}


def test_what_is_over_is_removed_from_real_hosts_when_the_operator_says_so(site: Site) -> None:
    gate = site.directory / "gate"
    site.iris("launch", "--wait", "--name", "old", *TPU, "--", "sh", "-c", "head -c 300000 /dev/zero >file")
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    site.iris("launch", "--name", "live", "--cpu", "0.1", "--", "sh", "-c", wait)
    site.until(lambda: site.job("live")["state"] == "RUNNING")
    directories = {path.name: path for host in site.hosts for path in host.home.glob(".iris/*/*/a/*")}
    tokens = {row["job"]: set[str]() for row in exported(site) if row["type"] == "TaskAssigned"}
    for row in exported(site):
        if row["type"] == "TaskAssigned":
            tokens[row["job"]].add(row["event"]["token"])
    before = {name: sorted(path.rglob("*")) for name, path in directories.items()}
    found = site.iris("gc", "--dry-run", "--json").json()
    assert sorted(each for row in found["workers"] for each in row["attempts"]) == [
        "old/task-0/attempt-0",
        "old/task-1/attempt-0",
    ]
    assert found["bytes"] >= 600_000
    assert "not a terminal: pass --yes to remove" in site.iris("gc").err
    assert {name: sorted(path.rglob("*")) for name, path in directories.items()} == before
    site.hosts[1].stop()
    partly = site.iris("gc", "--yes", "--json", code=7).json()
    problems = {row["worker"]: row["problem"] for row in partly["workers"]}
    assert problems["a-0"] == ""
    assert problems["a-1"].startswith("no answer")
    site.hosts[1].start()
    site.until(lambda: site.iris("gc", "--yes", "--json", code=None).json()["workers"] == [])
    for token in tokens["old"]:
        assert {path.name for path in directories[token].iterdir()} == {"cancel", "x.0"}
    for token in tokens["live"]:
        assert (directories[token] / "out").exists()
    gate.touch()
    site.iris("wait", "live")
