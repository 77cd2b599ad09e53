"""A real Slurm of several nodes on this machine, in a directory of its own. It needs root, slurm-wlm and munge."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.strays import end_strays
from tests.support.waiting import PATIENCE, until

_SBIN = ("/usr/sbin", "/sbin")
_DAEMONS = ("slurmctld", "slurmd", "munged")
_CLIENTS = ("sbatch", "srun", "scontrol", "squeue", "scancel", "mungekey")

_CONF = """\
ClusterName=lab
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=2
CommunicationParameters=NoCtldInAddrAny
SlurmdParameters=config_overrides
NodeName=n[0-{last}] NodeHostname={host} NodeAddr={address} Port=[{ports[1]}-{ports[2]}] CPUs={cpus} RealMemory=4096
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(eq=False)
class Slurm:
    """A cluster of `nodes` nodes, all on this host. Its files are in `directory`."""

    directory: Path
    nodes: int = 4
    cpus: int = 2
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of its commands and daemons."""
        path = os.pathsep.join((os.environ.get("PATH", ""), *_SBIN))
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": path}

    def start(self) -> None:
        """Start munged, slurmctld and a slurmd for each node; returns when every node is idle."""
        for name in ("state", *(f"spool.n{number}" for number in range(self.nodes))):
            (self.directory / name).mkdir()
        ports = _free_ports(self.nodes + 1)
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(
            directory=self.directory,
            host=host,
            address=socket.gethostbyname(host),  # often 127.0.1.1, from which srun expects connections
            last=self.nodes - 1,
            cpus=self.cpus,
            ports=(ports[0], ports[1], ports[-1]),
        )
        self.conf.write_text(text)
        self._start_munge()
        self._spawn("slurmctld", "-D", "-f", str(self.conf))
        for number in range(self.nodes):
            self._spawn("slurmd", "-D", "-f", str(self.conf), "-N", f"n{number}")
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

    def run(self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """Return the output of a Slurm command. Raises CalledProcessError."""
        done = subprocess.run(
            command,
            cwd=cwd or self.directory,
            env={**self.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

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

    def _start_munge(self) -> None:
        key = self.directory / "munge.key"
        subprocess.run(["mungekey", "--create", f"--keyfile={key}"], env=self.environ, check=True)
        places = {name: self.directory / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
        self._spawn(
            "munged",
            "--foreground",
            "--force",
            "--num-threads=2",
            f"--key-file={key}",
            f"--socket={places['socket']}",
            f"--pid-file={places['pid']}",
            f"--log-file={places['log']}",
            f"--seed-file={places['seed']}",
        )
        until(places["socket"].exists, self._said)

    def _spawn(self, *command: str) -> None:
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
            ["sinfo", "--noheader", "--Node", "--format=%T"],
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


def _free_ports(count: int) -> Sequence[int]:
    """Return a range of free ports, which Slurm needs for its nodes."""
    while True:
        first = random.randint(20_000, 31_000)
        ports = range(first, first + count)
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as sock, suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", port))
        return True
    return False


def why_no_slurm() -> str:
    """Return why this machine can't run Slurm; '' if it can."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_SBIN))
    missing = [name for name in (*_DAEMONS, *_CLIENTS) if shutil.which(name, path=path) is None]
    if missing:
        return f"no {missing[0]} on this machine (install slurm-wlm and munge)"
    return "" if os.geteuid() == 0 else "a Slurm of our own needs root"


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
