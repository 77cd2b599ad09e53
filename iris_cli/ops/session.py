"""One invocation: the state directory, the configuration, the clock and the way to the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from iris_cli.journal.state_dir import LOCK_TIMEOUT, StateDir

if TYPE_CHECKING:
    from iris_cli.journal.record import Header
    from iris_cli.remote.task_runner import TaskRunner
    from iris_cli.remote.transport import Target

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Session:
    """Everything an operation works with.

    `make_runner` gets the cluster's id; it is called once, and only if a worker is asked.
    """

    state: StateDir
    config: ClusterConfig
    make_runner: Callable[[str], TaskRunner]
    clock: Clock = field(default_factory=SystemClock)
    command: str = "iris"  # what the log and the lock say of us
    lock_timeout: float = LOCK_TIMEOUT
    cluster: Cluster = field(default_factory=Cluster)  # as of the last transaction or view
    messages: list[str] = field(default_factory=list)  # what a reader should hear of the log's health
    tell: Callable[[str], None] = lambda _: None  # says at once what a writer repaired
    read_at: tuple[float, float] = (0.0, 0.0)  # when the state in `cluster` was read, by both clocks
    _begun: bool = False
    _header: Header | None = None

    @property
    def limits(self) -> Limits:
        return self.config.limits

    def age(self, read_at: tuple[float, float]) -> float:
        """How long ago a state was read, in seconds, by the clock that says more.

        A wall clock may be set back, a monotonic one stands still while the machine sleeps.
        """
        wall, steady = read_at
        return max(self.clock.now() - wall, self.clock.monotonic() - steady)

    @cached_property
    def hosts(self) -> Mapping[WorkerId, HostConfig]:
        """The workers of the configuration."""
        return {host.worker: host for host in self.config.hosts}

    @cached_property
    def runner(self) -> TaskRunner:
        assert self._header is not None, "workers are asked only after the log was read"
        return self.make_runner(self._header.cluster_id)

    def view(self) -> Cluster:
        """The cluster as the log has it now, without the lock; `messages` hold a banner if it is damaged."""
        self.read_at = (self.clock.now(), self.clock.monotonic())
        log = self.state.read(self.cluster.seq)
        self._say(log.warnings)
        if log.damage is not None:
            self._say([f"{log.damage.what}; {log.damage.hint}"])
        self._header = log.header
        self.cluster = replay(log.transactions, self.cluster)
        return self.cluster

    @contextmanager
    def transaction(self) -> Iterator[Draft]:
        """Hold the lock, decide on a draft of the newest state; what was recorded is committed at the end.

        The first transaction of a new cluster makes its state directory. Nothing is committed if the block raises.
        Raises LockedError, LogDamagedError, NotWritableError, ConfigError.
        """
        if self._header is None:
            self.view()  # most of the log is read before the lock is asked for
        if self._header is None:
            self._tell(self.state.create(self.config.name, command=self.command, timeout=self._patience()))
        with self.state.locked(self.command, self._patience(), after_seq=self.cluster.seq) as writer:
            self._tell(writer.messages)
            self.read_at = (self.clock.now(), self.clock.monotonic())  # nobody writes while we hold the lock
            self._header = writer.header
            self.cluster = replay(writer.transactions, self.cluster)
            draft = Draft(self.cluster, self.clock.now())
            yield draft
            if draft.events:
                committed = writer.append(draft.events, at=draft.at)
                draft.cluster.seq, draft.cluster.at = committed.seq, committed.at
                self.cluster = draft.cluster
        self._begun = True

    def _patience(self) -> float:
        """How long to wait for the lock: what was asked for, at first; later outcomes are at stake."""
        return max(self.lock_timeout, LOCK_TIMEOUT) if self._begun else self.lock_timeout

    def _say(self, messages: Iterable[str]) -> None:
        self.messages += [message for message in messages if message not in self.messages]

    def _tell(self, messages: Iterable[str]) -> None:
        for message in messages:
            self.tell(message)

    def target(self, worker: Worker) -> Target:
        """The way to a worker: the configuration's while it is there, else the one in the log."""
        from iris_cli.remote.transport import Target

        host = self.hosts.get(worker.id)
        return Target(worker=worker.id, connection=host.connection if host is not None else worker.connection)

    def fan_out(self, items: Sequence[T], act: Callable[[T], R]) -> Iterator[list[R]]:
        """Act on many workers at once; results come in small batches, as they arrive."""
        from iris_cli.remote.fan_out import fan_out_in_batches

        for batch in fan_out_in_batches(items, act, parallelism=self.limits.max_dispatch_parallelism):
            yield [result for _, result in batch]
