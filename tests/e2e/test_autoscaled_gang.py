"""A slice that didn't exist runs a gang: made, probed, used, given back; on real SSH hosts of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.core.model.job import JobState
from iris_cli.demo.processes import make_key
from iris_cli.demo.provider import LocalProvider
from tests.support.desk import Desk
from tests.support.site import Site
from tests.support.waiting import until
from tests.support.worker_host import kill

CLUSTER = """
cluster: {name: lab}
ssh: {key: id_ed25519}
limits: {connect_timeout: 1m, dispatch_timeout: 1m}
scale_groups:
  - name: west
    priority: 1
    max_slices: 2
    idle_timeout: 1s
    slice_template: {provider: local, zone: us-west4-a, type: v4-16, preemptible: true}
"""


class Lab(Site):
    """A cluster without any host."""

    def cycle_until(self, what: JobState, job: str) -> None:
        """Run cycles as cron runs them until a job is in that state."""
        desk = Desk(self)

        def is_there() -> bool:
            self.iris("schedule", "--once", "--autoscale", code=None)
            state = desk.state(job)
            assert state in (what, JobState.PENDING, JobState.RUNNING), self.iris("status").out
            return state is what

        until(is_there, lambda: self.iris("status").out)

    def slices(self) -> list[str]:
        groups = self.iris("status", "--json").json()["scaling"]["groups"]
        return sorted(each["name"] for group in groups for each in group["slices"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, ())
    make_key(tmp_path / "id_ed25519")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    try:
        yield made
    finally:
        log = tmp_path / "state" / "events.jsonl"
        owner = json.loads(log.read_text().splitlines()[0])["cluster_id"] if log.exists() else ""
        provider = LocalProvider(tmp_path / "local-slices", owner, "us-west4-a")
        for each in provider.list():
            provider.delete(each.name)


def test_a_preempted_slice_is_replaced_its_gang_goes_again_whole_and_idle_slices_are_deleted(
    site: Lab,
) -> None:
    command = 'test "$IRIS_ATTEMPT" = 0 && sleep 600; echo done'
    site.iris("launch", "--no-schedule", "--name", "train", "--tpu", "v4-16", "--", "sh", "-c", command)
    site.cycle_until(JobState.RUNNING, "train")
    [first] = site.slices()
    books = site.directory / "local-slices"
    pid = json.loads((books / first / "pids").read_text())[0]
    kill(pid)
    site.cycle_until(JobState.SUCCEEDED, "train")
    assert first not in site.slices()

    def are_gone() -> bool:
        site.iris("autoscale", "--once", code=None)
        return not site.slices()

    until(are_gone)
    assert [path.name for path in books.iterdir()] == [".iris-local-slices"]


SET_UP = """
cluster: {name: lab}
ssh: {key: id_ed25519}
limits: {connect_timeout: 1m, dispatch_timeout: 1m}
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


def test_new_vms_are_set_up_once_whoever_is_killed_and_before_anything_else_runs_there(site: Lab) -> None:
    """Where that fails the slice goes, with what the command said last, and the next group serves.

    Nobody is killed while he makes the VMs: what is cut off there is waited for, which takes minutes.
    """
    (site.directory / "cluster.yaml").write_text(SET_UP)
    ready = ("--", "sh", "-c", "test -e $HOME/ready")
    site.iris("launch", "--no-schedule", "--name", "train", "--tpu", "v4-8", *ready)
    homes = site.directory / "local-slices"

    def is_set_up() -> bool:
        others = [site.start("autoscale", "--once")] if list(homes.glob("west-*/slice.json")) else []
        site.iris("schedule", "--once", "--autoscale", code=None)
        for other in others:
            other.kill()
            other.communicate()
        return any(homes.glob("west-*/hosts/*/home/ran"))

    until(is_set_up)
    site.cycle_until(JobState.SUCCEEDED, "train")
    assert [path.read_text() for path in homes.glob("west-*/hosts/*/home/ran")] == ["west\n"]
    records = map(json.loads, (site.directory / "state" / "events.jsonl").read_text().splitlines())
    failed_at = next(
        record["at"]
        for record in records
        for event in record["events"]
        if event["type"] == "SliceDeletionRequested"
    )
    status = site.iris("status", "--at", failed_at, "--json").json()  # the back-off may have ended since
    groups = {group["name"]: group for group in status["scaling"]["groups"]}
    assert "set-up failed on broken-" in groups["broken"]["backing_off"]
    for shown in (site.iris("status", "--at", failed_at), site.iris("history", "--all")):
        assert "exit 3: no " in shown.out
        assert "\033" not in shown.out
    assert list(homes.glob("broken-*")) == []
