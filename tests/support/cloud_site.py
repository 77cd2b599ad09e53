"""An operator with scale groups on an emulator of Google's TPU API, whose slices are real SSH hosts.

Time passes by itself; `later` moves the clocks of operator and cloud forward.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.ids import JobId
from iris_cli.demo.processes import make_key
from iris_cli.ops import autoscale
from tests.support.desk import Desk
from tests.support.forked import DEVNULL, Forked
from tests.support.site import Site
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.machines import LocalMachines
from tests.support.tpu_emulator.server import Emulator, start
from tests.support.waiting import until

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
WEST, CENTRAL = "us-west4-a", "us-central2-b"
CLUSTER = """
cluster: {{name: lab}}
ssh: {{key: id_ed25519}}
limits: {{connect_timeout: 1m, dispatch_timeout: 1m}}
scale_groups:
  - name: west
    priority: 1
    max_slices: 2
    slice_template:
      {{provider: gcp, project: p, zone: {west}, type: {tpu}, runtime: v2-tpu, preemptible: true, queued: {queued}}}
    worker: {{env: {{WHERE: west}}}}
  - name: central
    priority: 2
    max_slices: 2
    slice_template: {{provider: gcp, project: p, zone: {central}, type: {tpu}, runtime: v2-tpu}}
    worker: {{env: {{WHERE: central}}}}
"""


class CloudSite:
    """`desk` is the operator. Two groups: `west` is spot and tried first, `central` is in another region."""

    def __init__(self, path: Path, emulator: Emulator, tpu: str, *, queued: bool) -> None:
        self.path = path
        self.emulator = emulator
        self.cloud = emulator.cloud
        self.desk = Desk(Site(path, ()))
        self.cloud.offset = 0.0
        make_key(path / "id_ed25519")
        config = CLUSTER.format(west=WEST, central=CENTRAL, tpu=tpu, queued=str(queued).lower())
        (path / "cluster.yaml").write_text(config)

    def launch(self, name: str, *command: str, tpu: str, **asked: Any) -> None:
        self.desk.launch(name, *command, tpu=tpu, **asked)

    def round(self) -> list[str]:
        """Do the same as `iris schedule --once --autoscale`; return the groups that created a slice."""
        with self.desk.invocation("iris schedule --autoscale") as session:
            plan = autoscale.run(session, probe=False).plan
        self.desk.cycle()
        return [order.group.name for order in plan.create]

    def until(self, happened: Any) -> None:
        def tried() -> bool:
            self.round()
            return bool(happened())

        until(tried)

    def ended(self, *jobs: str) -> bool:
        states = [self.desk.state(job) for job in jobs if JobId(job) in self.desk.cluster.jobs]
        return len(states) == len(jobs) and all(state.terminal for state in states)

    def later(self, seconds: float) -> None:
        """Move the clocks forward. BEFORE, wait for operations that must end in time."""
        self.desk.clock.ahead += seconds
        self.cloud.offset += seconds

    def log_of(self, job: str, index: int = 0, attempt: int = -1) -> str:
        """Return the stdout of a task, read from its host."""
        token = self.desk.attempts(job, index)[attempt].token
        (found,) = (self.path / "machines").rglob(f"{token}/out")
        return found.read_text()

    def groups_of(self, job: str) -> list[str]:
        """Return the groups of the slices that ran the last attempts of a job."""
        cluster = self.desk.cluster
        ran = [task.attempts[-1].worker for task in cluster.tasks.values() if task.id.job == JobId(job)]
        return sorted({worker.split("-")[0] for worker in ran})

    def slices(self) -> list[str]:
        """Return the slices in the log."""
        return sorted(self.desk.cluster.slices)

    def made(self) -> list[str]:
        """Return all nodes ever created, in order."""
        return [each.name for each in self.cloud.books.made()]

    def iris(self, *words: str) -> Forked:
        """Start a command; the caller ends it."""
        return Forked(words, cwd=self.path, env={**os.environ, "HOME": str(self.path)}, stdout=DEVNULL)

    def empty_and_compare(self) -> None:
        """Delete all slices as idle; then check that cloud and log agree on every slice ever created."""
        self.later(1000)
        self.until(lambda: not self.slices())
        books, log = self.cloud.books, self.desk.site.events()
        assert books.left() == []
        assert (list(self.cloud.nodes), list(self.cloud.requests)) == ([], [])
        asked = [event["slice"] for event in log if event["type"] == "SliceRequested"]
        refused = {event["slice"] for event in log if event["type"] == "SliceRefused"}
        gone = [event["slice"] for event in log if event["type"] == "SliceDeleted"]
        assert len(set(self.made())) == len(self.made()), "a slice was made twice"
        assert set(self.made()) <= set(asked), "a slice was made that the log never asked for"
        assert sorted(gone) == sorted(set(asked) - refused), "the log lost sight of a slice"
        assert [path.name for path in (self.path / "machines").iterdir()] == [".iris-tpu-emulator"]


@contextlib.contextmanager
def cloud_site(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, tpu: str = "v4-8", queued: bool = False
) -> Iterator[CloudSite]:
    pytest.importorskip("google.cloud.tpu_v2")
    with start(Cloud(machines=LocalMachines(path / "machines"))) as emulator:
        monkeypatch.setenv(ENDPOINT, emulator.url)
        monkeypatch.setenv("HOME", str(path))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield CloudSite(path, emulator, tpu, queued=queued)
