"""A real Slurm of several nodes on this machine, in a directory of its own. It needs root, slurm-wlm and munge."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from iris_cli.demo.local_slurm import LocalSlurm, why_no_slurm
from tests.support.strays import end_strays
from tests.support.waiting import PATIENCE, until


class Slurm(LocalSlurm):
    """The Slurm of the demo, with other settings: `settings` are lines of slurm.conf, in place of its own."""

    timeout = PATIENCE

    def __init__(
        self,
        directory: Path,
        nodes: int = 4,
        *,
        gpus: int = 0,
        cgroups: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, nodes)
        self._gpus, self._cgroups, self._settings = gpus, cgroups, settings or {}

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of its commands and daemons."""
        return {**os.environ, **super().environ}

    def stop(self) -> None:
        """Cancel all jobs; end the daemons and all processes of jobs."""
        super().stop()
        end_strays(self.directory)
        if self._cgroups:
            _remove_cgroups()

    def run(self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """Return the output of a Slurm command. It must succeed."""
        done = self._command(command, cwd, env)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def status(self, *command: str) -> int:
        """The exit status of a command that may fail."""
        return self._command(command).returncode

    def submit(
        self, script: Path, *options: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """Submit a script; return the job id."""
        return self.run("sbatch", "--parsable", *options, str(script), cwd=cwd, env=env).strip()

    def jobs(self, job: str) -> list[dict[str, str]]:
        """Return the output of `scontrol` for a job, or for each task of an array."""
        lines = self.run("scontrol", "--oneliner", "show", "job", job).splitlines()
        return [
            dict(word.partition("=")[::2] for word in line.split() if "=" in word) for line in lines if line
        ]

    def ended(self, job: str) -> list[dict[str, str]]:
        """Return the same once all have ended."""
        until(lambda: all(each["JobState"] in _ENDED for each in self.jobs(job)), lambda: self.jobs(job))
        return self.jobs(job)

    def empty(self) -> None:
        """Cancel every job, and wait until all nodes are idle."""
        self.run("scancel", "--user=root")
        self._wait_until(self._is_idle)

    @contextmanager
    def paused(self, node: str) -> Iterator[None]:
        """Suspend the daemon of a node."""
        daemon = next(each for each in self._running if isinstance(each.args, tuple) and node in each.args)
        daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            daemon.send_signal(signal.SIGCONT)

    def stop_controller(self) -> None:
        """Stop slurmctld, which saves its state: no command of Slurm gets an answer."""
        process = next(each for each in self._running if "slurmctld" in str(each.args))
        process.terminate()  # killed, it would forget what it has not saved for some seconds
        process.wait(PATIENCE)
        self._running.remove(process)

    def start_controller(self) -> None:
        """Start it again with its state; returns when it answers."""
        self._start_controller()
        until(self._answers, self._said)

    def _answers(self) -> bool:
        return " UP" in self._run("scontrol", "ping").stdout

    def _command(
        self, command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=cwd or self.directory,
            env={**self.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def _configure(self) -> None:
        super()._configure()
        if self._gpus:
            self._add_gpus()
        if self._cgroups:
            self._track_by_cgroup()
        for name, value in self._settings.items():
            self._set(name, value)

    def _add_gpus(self) -> None:
        """Give each node GPUs of the type a100; files stand for their devices."""
        for number in range(self._gpus):
            (self.directory / f"gpu{number}").touch()
        devices = f"{self.directory}/gpu[0-{self._gpus - 1}]"
        (self.directory / "gres.conf").write_text(f"Name=gpu Type=a100 File={devices}\n")
        text = self.conf.read_text().replace(" RealMemory=", f" Gres=gpu:a100:{self._gpus} RealMemory=")
        self.conf.write_text(f"{text}GresTypes=gpu\n")

    def _track_by_cgroup(self) -> None:
        """Track the processes of jobs by cgroups of version 1, as many sites do."""
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self._set("ProctrackType", "proctrack/cgroup")

    def _set(self, name: str, value: str) -> None:
        lines = [line for line in self.conf.read_text().splitlines() if not line.startswith(f"{name}=")]
        self.conf.write_text("\n".join([f"{name}={value}", *lines, ""]))

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        def is_met() -> bool:
            for process in self._running:
                assert process.poll() is None, (process.args, self._said())
            return condition()

        until(is_met, self._said)

    def _said(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.directory.glob("*.log"))


_ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})


def _remove_cgroups() -> None:
    """Remove the empty cgroups that nodes leave behind when they end."""
    for path in sorted(Path("/sys/fs/cgroup/freezer").glob("slurm_n*/**/"), reverse=True):
        with suppress(OSError):
            path.rmdir()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Yield a cluster for all tests of a module; skip them if it can't run."""
    if why := why_no_slurm():
        pytest.skip(why)
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
