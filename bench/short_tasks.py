"""Target 17: many short tasks on eight local hosts, and a single one with `--wait`, as whole commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.result import Row, Scale
from bench.ssh_hosts import directory
from bench.stopwatch import median, seconds, wall
from iris_cli.demo.cluster import SLICES, LocalCluster

MOST_SECONDS_A_TASK = 1 / 40
MOST_SECONDS_OF_ONE = 0.6
_PATIENCE = 600


def rows(scale: Scale) -> Iterator[Row]:
    """Measure with the program `true` on the hosts of `iris demo`, on this machine."""
    with directory() as place:
        cluster = LocalCluster(place / "cluster")
        cluster.claim()
        cluster.start(SLICES)
        try:
            _iris(cluster.root, "schedule", "--once")
            tasks = scale.of(1000)
            one = median(lambda: _launch(cluster.root), repeat=scale.repeat, clock=wall)
            many = seconds(lambda: _launch(cluster.root, "--replicas", str(tasks), "--cpu", "0.1"), wall)
        finally:
            cluster.close()
    name = f"{tasks} tasks on 8 hosts, s wall a task"
    yield Row(target=17, name=name, value=many / tasks, reference=MOST_SECONDS_A_TASK, limit=1)
    yield Row(
        target=17, name="launch --wait -- true, s wall", value=one, reference=MOST_SECONDS_OF_ONE, limit=1
    )


def _launch(place: Path, *options: str) -> None:
    _iris(place, "launch", "--wait", *options, "--", "true")


def _iris(place: Path, *words: str) -> None:
    """Run a command in that directory. Raises CalledProcessError if it fails."""
    command: Sequence[str] = [sys.executable, "-m", "iris_cli", *words]
    subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "HOME": str(place)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=_PATIENCE,
    )
