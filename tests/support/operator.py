"""A cluster whose only worker never answers: its job never ends, so its loop keeps running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from iris_cli.journal.files.runners import LOOP, Runner
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cluster_handle import ClusterHandle
from iris_cli.ops.loop import start
from tests.house.rules import ROOT
from tests.support.command_server import command_server
from tests.support.waiting import until

CONFIG = """
cluster: {name: lab}
limits: {connect_timeout: 1s, loop_interval: 0.5s}
workers: [{id: w0, host: 127.0.0.1, port: 1}]
"""


@dataclass
class Operator:
    """Directory of the cluster. `env` is added to the environment of each command."""

    directory: Path
    package: Path = ROOT
    env: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> StateDir:
        return StateDir(self.directory / "state", now=time.time, actor=f"me@{os.uname().nodename}")

    @property
    def log(self) -> str:
        path = self.directory / "state" / "loop.log"
        return path.read_text() if path.exists() else ""

    def environ(self) -> dict[str, str]:
        names = {"HOME": str(self.directory), "PYTHONPATH": str(self.package)}
        return {**os.environ, **names, "XDG_RUNTIME_DIR": "", **self.env}

    def iris(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a forked process, which saves most of the start-up time."""
        assert self.package == ROOT, "the command server has loaded the modules of this tree"
        with TemporaryDirectory() as place:
            out, err = Path(place) / "out", Path(place) / "err"
            server = command_server()
            pid = server.start(words, directory=self.directory, env=self.environ(), out=out, err=err)
            code = server.wait(pid)
            return subprocess.CompletedProcess(words, code, out.read_text("utf-8"), err.read_text("utf-8"))

    def place(self) -> ClusterHandle:
        return ClusterHandle(config_path=self.directory / "cluster.yaml", state_path=self.directory / "state")

    def spawn(self) -> bool:
        return start.spawn(self.place(), self.environ()) is not None

    @property
    def loop(self) -> Runner | None:
        return start.running_loop(self.state)

    def pid(self) -> int:
        """Return the pid of the loop once it has recorded it."""
        until(lambda: self.loop is not None and self.loop.pid)
        assert self.loop is not None
        return self.loop.pid

    def end(self) -> None:
        """Kill the loop if it runs."""
        if self.loop is not None:
            os.kill(self.pid(), signal.SIGKILL)
            until(lambda: self.loop is None)

    def has_run_a_cycle(self) -> None:
        until(lambda: LOOP in (self.state.read_heartbeat() or {}).get("runners", {}))


@pytest.fixture(scope="session")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a cluster with a job, which is copied for each test."""
    directory = tmp_path_factory.mktemp("submitted")
    (directory / "cluster.yaml").write_text(CONFIG)
    ran = Operator(directory).iris("launch", "--no-schedule", "--name", "job", "--", "true")
    assert ran.returncode == 0, ran
    return directory


@pytest.fixture
def operator(tmp_path: Path, submitted: Path) -> Iterator[Operator]:
    shutil.copytree(submitted, tmp_path, dirs_exist_ok=True)
    found = Operator(tmp_path)
    yield found
    found.end()
