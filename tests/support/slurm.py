"""A real Slurm of several nodes on this machine, in a directory of its own. It needs root, slurm-wlm and munge."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iris_cli.demo.local_slurm import (
    PARTITION,
    munged_command,
    search_path,
    slurmctld_command,
    slurmd_commands,
    why_no_slurm,
    write_configuration,
)
from tests.support.strays import end_strays
from tests.support.waiting import PATIENCE, until


@dataclass(eq=False)
class Slurm:
    """A cluster of `nodes` nodes, all on this host. Its files are in `directory`."""

    directory: Path
    nodes: int = 4
    cpus: int = 2
    gpus: int = 0
    cgroups: bool = False
    settings: Mapping[str, str] = field(
        default_factory=dict
    )  # lines of slurm.conf, in place of those of the demo
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of its commands and daemons."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": search_path()}

    def start(self) -> None:
        """Start munged, slurmctld and a slurmd for each node; returns when every node is idle."""
        write_configuration(self.directory, self.nodes, self.cpus)
        if self.gpus:
            self._add_gpus()
        if self.cgroups:
            self._track_by_cgroup()
        for name, value in self.settings.items():
            self._set(name, value)
        self._spawn(munged_command(self.directory))
        until((self.directory / "munge.socket").exists, self._said)
        for command in (slurmctld_command(self.conf), *slurmd_commands(self.conf, self.nodes)):
            self._spawn(command)
        until(self._is_idle, self._said)

    def stop(self) -> None:
        """Cancel all jobs; end the daemons and all processes of jobs."""
        with suppress(subprocess.SubprocessError):
            self.run("scancel", "--user=root")
            self.run("scancel", "--user=root", "--signal=KILL")
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait(PATIENCE)
        self._running.clear()
        end_strays(self.directory)
        if self.cgroups:
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
        until(self._is_idle, self._said)

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
        self._spawn(slurmctld_command(self.conf))
        until(self._answers, self._said)

    def _answers(self) -> bool:
        return " UP" in self._command(["scontrol", "ping"]).stdout

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

    def _add_gpus(self) -> None:
        """Give each node GPUs of the type a100; files stand for their devices."""
        for number in range(self.gpus):
            (self.directory / f"gpu{number}").touch()
        devices = f"{self.directory}/gpu[0-{self.gpus - 1}]"
        (self.directory / "gres.conf").write_text(f"Name=gpu Type=a100 File={devices}\n")
        text = self.conf.read_text().replace(" RealMemory=", f" Gres=gpu:a100:{self.gpus} RealMemory=")
        self.conf.write_text(f"{text}GresTypes=gpu\n")

    def _track_by_cgroup(self) -> None:
        """Track the processes of jobs by cgroups of version 1, as many sites do."""
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self._set("ProctrackType", "proctrack/cgroup")

    def _set(self, name: str, value: str) -> None:
        lines = [line for line in self.conf.read_text().splitlines() if not line.startswith(f"{name}=")]
        self.conf.write_text("\n".join([f"{name}={value}", *lines, ""]))

    def _spawn(self, command: Sequence[str]) -> None:
        with (self.directory / "daemons.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    command,
                    cwd=self.directory,
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _is_idle(self) -> bool:
        for process in self._running:
            assert process.poll() is None, (process.args, self._said())
        shown = subprocess.run(
            ["sinfo", "--noheader", "--Node", f"--partition={PARTITION}", "--format=%T"],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return shown.stdout.split() == ["idle"] * self.nodes

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
