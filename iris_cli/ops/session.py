"""One invocation: the state directory, the configuration, the clock and the way to the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from iris_cli.clock import Clock, SystemClock
from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.cluster import Cluster
from iris_cli.core.evolve import Draft, replay
from iris_cli.core.ids import WorkerId
from iris_cli.core.limits import Limits
from iris_cli.core.worker import Worker
from iris_cli.journal.state_dir import StateDir

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import TaskRunner
    from iris_cli.remote.transport import Target

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Session:
    """Everything an operation works with. `make_runner` is called once, and only if a worker is asked."""

    state: StateDir
    config: ClusterConfig
    make_runner: Callable[[], TaskRunner]
    clock: Clock = field(default_factory=SystemClock)
    command: str = "iris"  # what the log and the lock say of us
    lock_timeout: float = 10.0
    cluster: Cluster = field(default_factory=Cluster)  # as of the last transaction or view
    messages: list[str] = field(default_factory=list)  # what the operator should hear of the log's health

    @property
    def limits(self) -> Limits:
        return self.config.limits

    @cached_property
    def hosts(self) -> Mapping[WorkerId, HostConfig]:
        """The workers of the configuration."""
        return {host.worker: host for host in self.config.hosts}

    @cached_property
    def runner(self) -> TaskRunner:
        return self.make_runner()

    def view(self) -> Cluster:
        """The cluster as the log has it now, without the lock; `messages` hold a banner if it is damaged."""
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[Draft]:
        """Hold the lock, decide on a draft of the newest state; what was recorded is committed at the end.

        Nothing is committed if the block raises. Raises LockedError, LogDamagedError, NotWritableError.
        """
        raise NotImplementedError
        yield Draft(replay(()), 0.0)

    def target(self, worker: Worker) -> Target:
        """The way to a worker: the configuration's while it is there, else the one in the log."""
        from iris_cli.remote.transport import Target

        host = self.hosts.get(worker.id)
        return Target(worker=worker.id, connection=host.connection if host is not None else worker.connection)

    def fan_out(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[list[R]]:
        """Act on many workers at once; results come in small batches, as they arrive."""
        from iris_cli.remote.fan_out import fan_out_in_batches

        return fan_out_in_batches(items, act, parallelism=self.limits.max_dispatch_parallelism)
