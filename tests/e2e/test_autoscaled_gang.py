"""A slice that didn't exist runs a gang: made, probed, used, given back; on real SSH hosts of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_cli.capacity.local import LocalProvider
from iris_cli.remote.local_keys import make_key

ROOT = Path(__file__).parents[2]
CLUSTER = """
cluster: {name: lab}
ssh: {key: id_ed25519}
scale_groups:
  - name: west
    priority: 1
    max_slices: 2
    idle_timeout: 1s
    slice_template: {provider: local, zone: us-west4-a, type: v4-16, preemptible: true}
    worker: {attributes: {region: us-west4, preemptible: "true"}, env: {WHERE: west}}
  - name: central
    priority: 2
    slice_template: {provider: local, zone: us-central2-b, type: v4-16}
    worker: {env: {WHERE: central}}
"""


class Site:
    """A cluster without any host, and the command line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {"PYTHONPATH": str(ROOT), "PATH": _path(), "HOME": str(path)}
        make_key(path / "id_ed25519")
        (path / "cluster.yaml").write_text(CLUSTER)

    def iris(self, *words: str) -> str:
        command, environment = [sys.executable, "-m", "iris_cli", *words], self.environment
        done = subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode in (0, 7), done.stdout + done.stderr
        return done.stdout

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "iris_cli", *words]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self.path, env=self.environment, stdout=quiet, stderr=quiet)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.iris("status", "--json"))
        return found

    def cycle_until(self, what: str, job: str) -> dict[str, Any]:
        """Cycles as cron runs them, until a job has come to that."""
        deadline = time.monotonic() + 120
        while True:
            self.iris("schedule", "--once", "--autoscale")
            status = self.status()
            state = next(each["state"] for each in status["jobs"] if each["id"] == job)
            if state == what:
                return status
            assert state != "FAILED", status
            assert time.monotonic() < deadline, status
            time.sleep(0.2)

    def slices(self) -> list[str]:
        return sorted(
            each["name"] for group in self.status()["scaling"]["groups"] for each in group["slices"]
        )


def _path() -> str:
    import os

    return os.environ["PATH"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        log = tmp_path / "state" / "events.jsonl"
        owner = json.loads(log.read_text().splitlines()[0])["cluster_id"] if log.exists() else ""
        for zone in ("us-west4-a", "us-central2-b"):
            provider = LocalProvider(tmp_path / "local-slices", owner, zone)
            for each in provider.list():
                provider.delete(each.name)


def test_a_gang_runs_on_a_slice_that_was_made_for_it_where_it_may_and_nothing_is_left(site: Site) -> None:
    site.iris(
        *("launch", "--no-schedule", "--name", "train", "--tpu", "v4-16", "-c", "region=us-central2"),
        *("--", "sh", "-c", "echo $WHERE $IRIS_TASK_INDEX"),
    )
    plan = json.loads(site.iris("autoscale", "--dry-run", "--json"))
    assert [(each["id"], each["required_regions"]) for each in plan["demand"]] == [("train", ["us-central2"])]
    assert [each["group"] for each in plan["create"]] == ["central"]
    status = site.cycle_until("SUCCEEDED", "train")
    assert sorted(site.iris("logs", "train", "--no-fold").splitlines()) == ["[0] central 0", "[1] central 1"]
    assert [group["name"] for group in status["scaling"]["groups"] if group["slices"]] == ["central"]
    assert len(site.slices()) == 1


def test_a_preempted_slice_is_replaced_its_gang_goes_again_whole_and_idle_slices_are_deleted(
    site: Site,
) -> None:
    command = 'test "$IRIS_ATTEMPT" = 0 && sleep 600; echo done'
    site.iris("launch", "--no-schedule", "--name", "train", "--tpu", "v4-16", "--", "sh", "-c", command)
    site.cycle_until("RUNNING", "train")
    [first] = site.slices()
    books = site.path / "local-slices"
    pid = json.loads((books / first / "pids").read_text())[0]
    _kill(pid)
    site.cycle_until("SUCCEEDED", "train")
    assert first not in site.slices()
    deadline = time.monotonic() + 120
    while site.slices():
        assert time.monotonic() < deadline
        time.sleep(0.5)
        site.iris("autoscale", "--once")
    assert [path.name for path in books.iterdir()] == [".iris-local-slices"]


SET_UP = """
cluster: {name: lab}
ssh: {key: id_ed25519}
scale_groups:
  - name: broken
    priority: 1
    setup: 'printf "no \\033[31mmirror\\n"; exit 3'
    slice_template: {provider: local, zone: us-west4-a, type: v4-8}
  - name: west
    priority: 2
    setup: "echo $WHERE >> $HOME/ran; sleep 1; touch $HOME/ready"
    slice_template: {provider: local, zone: us-west4-a, type: v4-8}
    worker: {env: {WHERE: west}}
"""


def test_new_vms_are_set_up_once_whoever_is_killed_and_before_anything_else_runs_there(site: Site) -> None:
    """Where that fails the slice goes, with what the command said last, and the next group serves.

    Nobody is killed while he makes the VMs: what is cut off there is waited for, which takes minutes.
    """
    (site.path / "cluster.yaml").write_text(SET_UP)
    ready = ("--", "sh", "-c", "test -e $HOME/ready")
    site.iris("launch", "--no-schedule", "--name", "train", "--tpu", "v4-8", *ready)
    homes = site.path / "local-slices"
    deadline = time.monotonic() + 120
    while not list(homes.glob("west-*/hosts/*/home/ran")):
        assert time.monotonic() < deadline, site.iris("status")
        others = [site.begin("autoscale", "--once")] if list(homes.glob("west-*/slice.json")) else []
        site.iris("schedule", "--once", "--autoscale")
        for other in others:
            other.kill()
            other.wait(60)
    status = site.cycle_until("SUCCEEDED", "train")
    assert [path.read_text() for path in homes.glob("west-*/hosts/*/home/ran")] == ["west\n"]
    groups = {group["name"]: group for group in status["scaling"]["groups"]}
    assert "its set-up failed on broken-" in groups["broken"]["backing_off"]
    for shown in (site.iris("status"), site.iris("history", "--all")):
        assert "exit 3: no " in shown
        assert "\033" not in shown
    assert list(homes.glob("broken-*")) == []


def _kill(pid: int) -> None:
    import os
    import signal

    os.kill(pid, signal.SIGKILL)
