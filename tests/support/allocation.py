"""A job of the real Slurm whose nodes are reached by `srun`, with holder steps as a batch script starts them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import ProbeReport
from iris_cli.core.model.worker import Connection
from iris_cli.remote.srun import SrunTransport
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_script import holder_script
from tests.support.slurm import Slurm
from tests.support.sshd import SshLab
from tests.support.strays import end_strays, strays
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost

NODE = "n1"
_DAEMON = re.compile(r"slurmstepd: \[((\d+)\.\w+)\]")


@dataclass
class Allocation:
    """One job that holds nodes of the cluster, with files of its workers below `directory`."""

    slurm: Slurm
    job: str
    directory: Path
    over_ssh: SshTransport

    @property
    def remote_dir(self) -> str:
        return str(self.directory / "a worker")

    @property
    def transport(self) -> SrunTransport:
        """A transport that runs `srun` on this machine."""
        return SrunTransport(self.over_ssh, self.slurm.environ)

    def target(self, node: str = NODE, **overrides: Any) -> Target:
        settings = {"host": "127.0.0.1", "allocation": self.job, "node": node, "remote_dir": self.remote_dir}
        return Target(worker=WorkerId(node), connection=Connection(**settings | overrides))

    def worker(self, node: str = NODE) -> SrunWorker:
        """A probed worker: waits for its holder."""
        worker = SrunWorker(self.directory / node, self.directory, allocation=self, node=node)

        def is_probed() -> bool:
            answer = worker.runner.probe(worker.target)
            if isinstance(answer, ProbeReport):
                worker.boot_id, worker.incarnation = answer.boot_id, answer.incarnation
            return isinstance(answer, ProbeReport)

        until(is_probed)
        return worker

    def holder(self, node: str) -> Path:
        """The directory of a node's holder."""
        return Path(self.remote_dir) / f"holder.{self.job}.{node}"

    def holder_pid(self) -> int:
        return int((self.holder(NODE) / "pid").read_text().split()[0])

    def steps(self, name: str) -> dict[str, str]:
        """The node of each step of that name, by the step's id."""
        lines = self.slurm.run("squeue", "--steps", "--noheader", "--format=%i %j %N").splitlines()
        found = [line.split() for line in lines]
        return {step: node for step, of, node in found if step.split(".")[0] == self.job and of == name}

    def is_called(self) -> bool:
        """Whether a step runs that is neither a holder nor the batch script.

        The controller's list is not the answer: it keeps a step whose client was killed before the step began.
        """
        words = strays(self.slurm.directory).values()
        running = {found[1] for each in words if (found := _DAEMON.match(each)) and found[2] == self.job}
        return bool(running - {f"{self.job}.batch", f"{self.job}.extern", *self.steps("iris-holder")})

    def until_ready(self) -> None:
        """Wait until a step can be started."""
        run = ("srun", f"--jobid={self.job}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet", "true")
        until(lambda: not self.slurm.status(*run))


@dataclass(eq=False)
class SrunWorker(WorkerHost):
    """A node of an allocation as a worker."""

    allocation: Allocation = field(kw_only=True)
    node: str = field(kw_only=True)

    def __post_init__(self) -> None:
        self.runner = TaskRunner(self.allocation.transport, "c1", connect_timeout=PATIENCE, timeout=PATIENCE)
        self.target = self.allocation.target(self.node)

    @property
    def root(self) -> Path:
        return Path(self.allocation.remote_dir) / "c1" / self.node


Allocate = Callable[..., Allocation]


@pytest.fixture
def allocate(slurm: Slurm, tmp_path: Path, ssh: SshTransport) -> Iterator[Allocate]:
    """Submits jobs; their nodes are free again after the test."""
    with allocating(slurm, tmp_path, ssh) as submit:
        yield submit


@contextmanager
def allocating(slurm: Slurm, place: Path, ssh: SshTransport) -> Iterator[Allocate]:
    """Submit jobs, with files below a directory; afterwards their nodes are free again."""
    made: list[Allocation] = []

    def submit(nodes: int = 4, *, node: str = NODE, shell: str = "/bin/sh") -> Allocation:
        directory = place / f"job-{len(made)}"
        directory.mkdir()
        allocation = Allocation(slurm, "", directory, ssh)
        script = directory / "batch.sh"
        script.write_text(f"#!{shell}\n{holder_script(allocation.remote_dir)}")
        options = (f"--nodes={nodes}", f"--nodelist={node}", "--ntasks-per-node=1")
        allocation.job = slurm.submit(script, *options, f"--output={directory}/batch.out", cwd=directory)
        made.append(allocation)
        allocation.until_ready()
        return allocation

    try:
        yield submit
    finally:
        for each in made:
            slurm.run("scancel", "--quiet", each.job)
        for each in made:
            slurm.ended(each.job)
        end_strays(place)


@pytest.fixture(scope="module")
def shared_allocation(
    slurm: Slurm, tmp_path_factory: pytest.TempPathFactory, shared_lab: SshLab
) -> Iterator[Allocation]:
    """One node for all tests of a module: a job of its own takes longer than most tests."""
    over_ssh = SshTransport(shared_lab.known_hosts, ssh_config=None, user_known_hosts=None)
    with allocating(slurm, tmp_path_factory.mktemp("allocation"), over_ssh) as submit:
        yield submit(1)
    over_ssh.close()
