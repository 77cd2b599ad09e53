"""A real Slurm of several nodes on this machine, in a directory of its own. It needs root, slurm-wlm and munge."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.errors import IrisError
from iris_cli.randomness import SYSTEM_RANDOMNESS

PARTITION, URGENT = "main", "urgent"
"""The default partition, and a partition whose jobs preempt jobs of the default partition."""
_SBIN = ("/usr/sbin", "/sbin")
_DAEMONS = ("slurmctld", "slurmd", "munged")
_CLIENTS = ("sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo", "mungekey")
_STOP_TIMEOUT = 10.0  # seconds, for all jobs and for each daemon
_POLL_INTERVAL = 0.1
_MAX_DIRECTORY = 107 - len("/spool.n0/n0_9999.4294967295")
"""The largest length of a directory in bytes: a step's socket is below it, and its path has at most 107 (unix(7))."""

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
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait=2
CommunicationParameters=NoCtldInAddrAny
SlurmdParameters=config_overrides
NodeName=n[0-{last}] NodeHostname={host} NodeAddr={address} Port=[{ports[1]}-{ports[2]}] CPUs={cpus} RealMemory=4096
PartitionName={main} Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName={urgent} Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""


def why_no_slurm() -> str:
    """Return why this machine can't run a local Slurm cluster; "" if it can."""
    missing = [name for name in (*_DAEMONS, *_CLIENTS) if shutil.which(name, path=search_path()) is None]
    if missing:
        return f"no {missing[0]} on this machine: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "starting a local Slurm cluster needs root"


def search_path() -> str:
    """Return PATH with the directories of Slurm's daemons."""
    return os.pathsep.join((os.environ.get("PATH", ""), *_SBIN))


def _free_ports(count: int) -> Sequence[int]:
    """Return consecutive free ports, because Slurm needs a range of ports for its nodes."""
    while True:
        first = 20_000 + int(SYSTEM_RANDOMNESS.hexadecimal(4), 16) % 11_000
        ports = range(first, first + count)
        if all(map(_is_free, ports)):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as sock, suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", port))
        return True
    return False


class LocalSlurm:
    """A Slurm cluster with `nodes` nodes, all on this machine. Its files are in `directory`."""

    cpus = 2  # per node
    timeout = 60.0  # seconds, for a command and for all nodes to become idle

    def __init__(self, directory: Path, nodes: int) -> None:
        self.directory = directory
        self.conf = directory / "slurm.conf"
        self.nodes = nodes
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that Slurm's commands need."""
        return {"SLURM_CONF": str(self.conf), "PATH": search_path()}

    def start(self) -> None:
        """Start the daemons; return when every node is idle. Raises IrisError."""
        if len(os.fsencode(self.directory)) > _MAX_DIRECTORY:
            words = (
                f"the path {self.directory} is too long for Slurm's sockets: {_MAX_DIRECTORY} bytes at most"
            )
            raise IrisError(words, hint="TMPDIR=/tmp iris demo --slurm")
        self._configure()
        munge = self.directory / "munge"
        files = (f"--{name}-file={munge}.{name}" for name in ("key", "pid", "log", "seed"))
        self._spawn(
            "munged", "--foreground", "--force", "--num-threads=2", f"--socket={munge}.socket", *files
        )
        self._wait_until(munge.with_suffix(".socket").exists)
        self._start_controller()
        for number in range(self.nodes):
            self._spawn("slurmd", "-D", "-f", str(self.conf), "-N", f"n{number}")
        self._wait_until(self._is_idle)

    def stop(self) -> None:
        """Cancel every job and end the daemons."""
        with suppress(OSError, subprocess.SubprocessError):
            for signal in ((), ("--signal=KILL", "--full")):
                self._run("scancel", "--user=root", *signal)
            # Wait for idle nodes BEFORE stopping the daemons: a step never exits if its slurmd has ended.
            until = SYSTEM_CLOCK.monotonic() + _STOP_TIMEOUT
            while set(self._states()) != {"idle"} and SYSTEM_CLOCK.monotonic() < until:
                SYSTEM_CLOCK.sleep(_POLL_INTERVAL)
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT)
            process.kill()
            process.wait()
        self._running.clear()

    def run(self, *command: str) -> str:
        """Run a command of Slurm and return its output. Raises IrisError."""
        result = self._run(*command)
        if result.returncode:
            raise IrisError(f"{command[0]}: {result.stderr.strip()}")
        return result.stdout

    def _configure(self) -> None:
        """Create the directories, the key and the configuration."""
        for name in ("state", *(f"spool.n{number}" for number in range(self.nodes))):
            (self.directory / name).mkdir()
        ports = _free_ports(self.nodes + 1)
        host = socket.gethostname().partition(".")[0]
        self.conf.write_text(
            _CONF.format(
                directory=self.directory,
                host=host,
                # This is often 127.0.1.1. srun accepts connections only from this address.
                address=socket.gethostbyname(host),
                last=self.nodes - 1,
                cpus=self.cpus,
                ports=(ports[0], ports[1], ports[-1]),
                main=PARTITION,
                urgent=URGENT,
            ),
            encoding="utf-8",
        )
        subprocess.run(  # noqa: S603 - a fixed program and a file of our own
            ["mungekey", "--create", f"--keyfile={self.directory}/munge.key"],  # noqa: S607 - mungekey is where PATH says
            env={**os.environ, "PATH": search_path()},
            check=True,
        )

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - commands of Slurm
            command,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )

    def _states(self) -> list[str]:
        return self._run(
            "sinfo", "--noheader", "--Node", f"--partition={PARTITION}", "--format=%T"
        ).stdout.split()

    def _is_idle(self) -> bool:
        return self._states() == ["idle"] * self.nodes

    def _start_controller(self) -> None:
        self._spawn("slurmctld", "-D", "-f", str(self.conf))

    def _spawn(self, *command: str) -> None:
        with (self.directory / "daemons.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(  # noqa: S603 - Slurm's daemons
                    command,
                    cwd=self.directory,
                    # Set HOME below the demo's directory: the next demo kills leftover processes by their HOME.
                    env={**os.environ, **self.environ, "HOME": str(self.directory)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        until = SYSTEM_CLOCK.monotonic() + self.timeout
        while not condition():
            if SYSTEM_CLOCK.monotonic() > until or any(each.poll() is not None for each in self._running):
                raise IrisError("Slurm did not start", hint=f"see {self.directory}/*.log")
            SYSTEM_CLOCK.sleep(_POLL_INTERVAL)
