"""`make demo-autoscale`: slices on demand are created, preempted, replaced and deleted, without an account."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from iris_cli.cli import app, cycles
from iris_cli.cli.context import Context
from iris_cli.clock import SystemClock
from iris_cli.core.ids import JobId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobState
from iris_cli.demo.processes import demo_home, make_key
from iris_cli.demo.run import Tour, forget_other_clusters
from iris_cli.errors import IrisError
from iris_cli.ops.loop.start import SWITCH
from iris_cli.render.console import Output
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.machines import LocalMachines
from tests.support.tpu_emulator.server import start
from tests.support.tpu_emulator.settings import Settings

_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
_CLUSTER = """\
cluster: {name: demo}
ssh: {key: id_ed25519}
scale_groups:
  - name: west
    priority: 1
    max_slices: 1
    idle_timeout: 3s
    slice_template: {provider: gcp, project: demo, zone: us-west4-a, type: v4-16, runtime: tpu-ubuntu2204, spot: true}
    worker: {env: {BUCKET: gs://west}}
  - name: central
    priority: 2
    max_slices: 1
    idle_timeout: 3s
    slice_template: {provider: gcp, project: demo, zone: us-central2-b, type: v4-8, runtime: tpu-ubuntu2204}
    worker: {env: {BUCKET: gs://central}}
"""
_TRAIN = 'echo "rank $IRIS_TASK_INDEX, attempt $IRIS_ATTEMPT, $BUCKET"; test $IRIS_ATTEMPT != 0 || sleep 600'
_EVAL = 'echo "reading $BUCKET"'
_PATIENCE = 600.0
"""Seconds for one act, which takes a few on an idle machine."""


class CronTour(Tour):
    """A tour that runs the cron entry itself."""

    def __init__(self, config: Path) -> None:
        super().__init__(Output(), config)
        self._said: list[str] = []

    def run(self, command: tuple[str, ...], *, capture: bool) -> subprocess.CompletedProcess[str]:
        """Run an iris command in this process, which takes less time than a new one."""
        code = app.run(["--config", str(self.config), *command])
        return subprocess.CompletedProcess(command, code, stdout="")

    def cycle(self) -> None:
        """Do the same as `iris schedule --once --autoscale`; print only new lines."""
        heard = StringIO()
        with redirect_stdout(heard), redirect_stderr(heard):
            cycles.schedule(Context(config_path=self.config), once=True, scale=True)
        lines = heard.getvalue().splitlines()
        for line in lines:
            if line not in self._said:
                self.output.line(line)
        self.output.flush()
        self._said = lines


def main() -> int:
    """Run the demo and remove its files."""
    if not _client_is_there():
        sys.stderr.write('error: this demo needs Google\'s client for TPUs: pip install "iris-cli[gcp]"\n')
        return 1
    forget_other_clusters()
    os.environ[SWITCH] = "off"
    with demo_home() as root:
        left = _play(root)
    if left:
        sys.stderr.write(f"error: the demo left slices behind: {', '.join(left)}\n")
    return int(bool(left))


def _client_is_there() -> bool:
    try:
        return find_spec("google.cloud.tpu_v2") is not None
    except ModuleNotFoundError:
        return False


def _play(root: Path) -> list[str]:
    """Run the acts; return the slices that were not deleted."""
    make_key(root / "id_ed25519")
    config = root / "cluster.yaml"
    config.write_text(_CLUSTER, encoding="utf-8")
    cloud = Cloud(Settings(create_seconds=1.0), machines=LocalMachines(root / "machines"))
    with start(cloud) as emulator:
        # No proxy: it could not reach this machine.
        os.environ.update({_ENDPOINT: emulator.url, "no_proxy": "127.0.0.1"})
        tour = CronTour(config)
        try:
            _up(tour)
            _preempted(tour, cloud.preempt)
            _down(tour)
        finally:
            tour.end()
        made = [each.name for each in cloud.books.made()]
        left = [each.name for each in cloud.books.left()]
    tour.announce(f"The cloud's own books: made {', '.join(made)}; left: {', '.join(left) or 'none'}.")
    return left


def _up(tour: CronTour) -> None:
    launch = ("launch", "--no-schedule", "--name")
    tour.step(
        "There is no machine, but two scale groups in two regions. A gang of two VMs for the one,",
        (*launch, "train", "--tpu", "v4-16", "-c", "region=us-west4", "--", "sh", "-c", _TRAIN),
    )
    tour.step(
        "and a job of one VM for the other, where its data are.",
        (*launch, "eval", "--tpu", "v4-8", "-c", "region=us-central2", "--", "sh", "-c", _EVAL),
    )
    tour.step("What is missing, and who would make it?", ("autoscale", "--dry-run"))
    _until(
        tour,
        "Cron runs this again and again. Slices are made, probed, and used as soon as they are whole:",
        lambda now: _is(now, "train", JobState.RUNNING) and _is(now, "eval", JobState.SUCCEEDED),
    )
    tour.step("", ("status",))


def _preempted(tour: CronTour, preempt: Callable[[str], None]) -> None:
    live = tour.cluster.live_attempts_of(JobId("train"))
    [name] = {attempt.worker.rpartition("-")[0] for _, attempt in live}
    preempt(name)
    _until(
        tour,
        f"The cloud takes {name} back. It is replaced, and the gang goes again as a whole:",
        lambda now: _is(now, "train", JobState.SUCCEEDED),
    )
    tour.step("", ("logs", "train"))


def _down(tour: CronTour) -> None:
    _until(
        tour,
        "Nobody needs slices any more. After idle_timeout, 3 s here, they go:",
        lambda now: not now.slices,
    )
    tour.step("", ("status",))


def _until(tour: CronTour, words: str, happened: Callable[[Cluster], bool]) -> None:
    """Run the cron entry until something has happened."""
    tour.announce(words, ("schedule", "--once", "--autoscale"))
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE
    while not happened(tour.cluster):
        if clock.monotonic() > deadline:
            raise IrisError(f"the demo waits too long: {words}", hint="please report this")
        tour.cycle()
        clock.sleep(0.5)


def _is(now: Cluster, job: str, state: JobState) -> bool:
    return now.job_state(JobId(job)) is state


if __name__ == "__main__":
    sys.exit(main())
