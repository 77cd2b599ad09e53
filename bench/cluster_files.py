"""A cluster in a directory: its `cluster.yaml`, its event log, and the environment for `iris`."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scripted_sshd import BOOT_ID, incarnation_of
from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import HostConfig
from iris_cli.core.attributes import TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.events.events import (
    AttemptEnded,
    Event,
    JobEnded,
    JobSubmitted,
    TaskAssigned,
    TaskDispatched,
    TaskEnded,
    TaskRunning,
    WorkerConditionChanged,
    WorkerRegistered,
    WorkerUpdated,
)
from iris_cli.core.ids import JobId, TaskId, Token, WorkerId
from iris_cli.core.model.job import CoschedulingConfig, Job
from iris_cli.core.model.task import End, EndReason, TaskState
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.resources import Device, Resources
from iris_cli.journal.state_dir import StateDir

GIB = 1 << 30
NOW = 1_700_000_000.0
CHIPS = 4


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The files of a cluster. `write` appends to the log; `iris` returns the command line of an invocation."""

    directory: Path
    hosts: tuple[HostConfig, ...]

    @classmethod
    def make(cls, directory: Path, workers: int, *, vms: int = 4, ssh_config: str = "") -> ClusterFiles:
        """Create slices of that many VMs, all of them probed and idle."""
        slices = range((workers + vms - 1) // vms)
        kind = f"v5e-{vms * CHIPS}"
        entries = [f"  - {{name: s{n}, type: {kind}, hosts: 's{n}-w-[0-{vms - 1}]'}}" for n in slices]
        config = directory / "cluster.yaml"
        config.write_text("\n".join(["cluster: {name: bench}", "slices:", *entries, ""]))
        (directory / ".ssh").mkdir()
        (directory / ".ssh/config").write_text(ssh_config)
        read = load_cluster_config(config)
        made = cls(directory, read.hosts)
        state = made._state()
        state.create("bench")
        made.write([each for host in made.hosts for each in _joined(host)])
        return made

    @property
    def workers(self) -> list[WorkerId]:
        return [host.worker for host in self.hosts]

    @property
    def known_hosts(self) -> Path:
        return self._state().known_hosts

    @property
    def environment(self) -> dict[str, str]:
        """The environment, without the user's settings."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
        return {**kept, "HOME": str(self.directory), "USER": "bench", "NO_COLOR": "1", "IRIS_LOOP": "off"}

    def iris(self, *words: str) -> list[str]:
        config = [
            "--config",
            str(self.directory / "cluster.yaml"),
            "--state-dir",
            str(self.directory / "state"),
        ]
        return [sys.executable, "-m", "iris_cli", *config, *words]

    def write(self, events: Sequence[Event], lines: int = 1) -> None:
        """Append events, spread over that many lines."""
        size = -(-len(events) // lines)
        with self._state().locked("bench") as writer:
            for first in range(0, len(events), size):
                writer.append(events[first : first + size], at=NOW)

    def _state(self) -> StateDir:
        return StateDir(self.directory / "state", now=lambda: NOW, actor="bench@here", cluster_name="bench")


def running(workers: Sequence[WorkerId], tasks: int, *, of_a_job: int = 1000) -> Iterator[Event]:
    """Yield the events of jobs with running tasks, spread over the workers."""
    places = itertools.cycle(workers)
    for first in range(0, tasks, of_a_job):
        job = Job(id=JobId(f"running-{first}"), command=("train",), replicas=min(of_a_job, tasks - first))
        yield JobSubmitted(job=job)
        for task in job.task_ids:
            yield from _started(task, next(places))


def running_gang(workers: Sequence[WorkerId]) -> tuple[list[Event], list[Token]]:
    """Return the events of a gang with one rank on each worker, and its tokens."""
    job = Job(
        id=JobId("gang"),
        command=("train",),
        replicas=len(workers),
        resources=Resources(device=Device("tpu", "auto")),
        coscheduling=CoschedulingConfig(TPU_NAME_ATTRIBUTE_KEY),
    )
    events: list[Event] = [JobSubmitted(job=job)]
    for task, worker in zip(job.task_ids, workers, strict=True):
        events += _started(task, worker)
    return events, [each.token for each in events if isinstance(each, TaskAssigned)]


def finished(workers: Sequence[WorkerId], jobs: int) -> Iterator[Event]:
    """Yield the events of jobs of one task that have ended."""
    places = itertools.cycle(workers)
    for number in range(jobs):
        job = Job(id=JobId(f"finished-{number}"), command=("train",), submitted_at=NOW)
        (task,) = job.task_ids
        end = End(reason=EndReason.OK, at=NOW, exit_code=0)
        yield JobSubmitted(job=job)
        yield from _started(task, next(places))
        yield AttemptEnded(task=task, attempt=0, end=end)
        yield TaskEnded(task=task, state=TaskState.SUCCEEDED, end=end)
        yield JobEnded(job=job.id, end=end)


def _started(task: TaskId, worker: WorkerId) -> Iterable[Event]:
    yield TaskAssigned(task=task, attempt=0, worker=worker, token=Token(secrets.token_hex(16)))
    yield TaskDispatched(task=task, attempt=0)
    yield TaskRunning(task=task, attempt=0, started_at=NOW)


def _joined(host: HostConfig) -> Iterable[Event]:
    yield WorkerRegistered(worker=host.worker, connection=host.connection)
    yield WorkerUpdated(
        worker=host.worker,
        connection=host.connection,
        attributes=host.attributes,
        cpu=112.0,
        memory=400 * GIB,
        chips=CHIPS,
        boot_id=BOOT_ID,
        incarnation=incarnation_of(host.worker),
        declared=host.fingerprint,
    )
    yield WorkerConditionChanged(worker=host.worker, condition=WorkerCondition.HEALTHY)
