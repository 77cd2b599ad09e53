"""The session of one invocation: state directory, configuration, clock and connections to workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct, field

from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.config.schema import ClusterConfig, HostConfig, hosts_of_slices
from iris_cli.core import Cluster, Limits, Worker, WorkerId
from iris_cli.core.events import IllegalTransitionError
from iris_cli.errors import LogDamagedError, LogReplacedError
from iris_cli.journal.log.recovery import Damage, log_messages
from iris_cli.journal.state_dir import LOCK_TIMEOUT, StateDir
from iris_cli.randomness import SYSTEM_RANDOMNESS, Randomness

if TYPE_CHECKING:
    from iris_cli.capacity.provider import SliceProvider
    from iris_cli.core.events.events import Transaction
    from iris_cli.core.evolve import Draft
    from iris_cli.core.messages.cloud import Scope
    from iris_cli.core.model.slice import Slice, SliceOwner
    from iris_cli.journal.log.position import Header
    from iris_cli.journal.log.writer import Writer
    from iris_cli.journal.state_dir import LogView
    from iris_cli.remote.fan_out import FanOut
    from iris_cli.remote.task_runner import TaskRunner
    from iris_cli.remote.transport import Target

T = TypeVar("T")
R = TypeVar("R")

ReadAt = tuple[float, float]
"""The time of a read, by the wall clock and by the monotonic clock."""

ProgressState: TypeAlias = tuple[str, int, int, str]
"""Name of the step, units done, total units (0: unknown), and the noun for a unit.

If the noun is `bytes`, the numbers are shown as sizes. If the noun is '', only the name is shown. If the name is '',
nothing is shown.
"""

GetProgress: TypeAlias = Callable[[], ProgressState]
"""Function that returns the progress. It is called in another thread, so the values may be inconsistent."""

Progress: TypeAlias = Callable[[GetProgress], AbstractContextManager[None]]
"""Function that returns a context manager. While its block runs, the progress of the slow step is shown."""

_SHORT_WAIT = 1.0  # seconds of waiting for the lock before a message is shown


def _threads(parallelism: int) -> FanOut[Any]:
    from iris_cli.remote.fan_out import Threads

    return Threads(parallelism)


class Session(Struct, dict=True):
    """The state, the configuration and the interfaces to the outside that an operation uses.

    `make_runner` gets the cluster's id. It is called once, before the first call to a worker. `make_fan_out` gets the
    maximum number of parallel calls. Operations wait only in methods of the clock, the fan-out and the state directory.
    Functions that a fan-out runs wait only in methods of the runner. Tests rely on both rules.
    """

    state: StateDir
    config: ClusterConfig
    make_runner: Callable[[str], TaskRunner]
    clock: Clock = SYSTEM_CLOCK
    randomness: Randomness = SYSTEM_RANDOMNESS
    make_fan_out: Callable[[int], FanOut[Any]] = _threads
    command: str = "iris"  # name of this command in the log and the lock
    lock_timeout: float = LOCK_TIMEOUT
    cluster: Cluster = field(default_factory=Cluster)  # as of the last transaction or view
    messages: list[str] = field(default_factory=list)  # problems of the log, to show to the user
    damage: Damage | None = None  # damage of the log that this session has read
    tell: Callable[[str], None] = lambda _: None  # prints a message at once
    progress: Progress = lambda _: nullcontext()  # shows the progress of slow steps
    # Transactions that `watch` has not printed yet; None: not collected.
    new_transactions: list[Transaction] | None = None
    read_at: ReadAt = (0.0, 0.0)  # the time at which `cluster` was read
    faults: list[str] = field(default_factory=list)  # internal errors that do not end the command
    make_provider: Callable[[Scope, str], SliceProvider] | None = None  # for tests
    runs_as: str = "command"  # kind of the runner, such as "loop", recorded with each cycle
    cycle_details: Callable[[], Mapping[str, object]] = dict  # returns data to record with each cycle
    may_need_cycles: bool = False  # True if this session committed events or ran cycles
    slice_owner: SliceOwner | None = None  # owner of slices; None: derived from the state directory
    _hosts_cache: tuple[Mapping[str, Slice], Mapping[WorkerId, HostConfig]] | None = None
    has_locked: bool = False  # True if this invocation has held the lock
    _last_collected: int = 0  # sequence number of the last transaction added to `new_transactions`
    _header: Header | None = None
    # Illegal transitions whose events are not printed yet.
    _illegal_transitions: list[IllegalTransitionError] = field(default_factory=list)

    @property
    def limits(self) -> Limits:
        return self.config.limits

    def age(self, read_at: ReadAt) -> float:
        """Return the seconds since the state was read, by the clock that shows the longer time.

        The wall clock may be set back, and the monotonic clock stops while the machine is suspended.
        """
        wall, monotonic = read_at
        return max(self.clock.now() - wall, self.clock.monotonic() - monotonic)

    @property
    def hosts(self) -> Mapping[WorkerId, HostConfig]:
        """The configured hosts by worker: hosts of cluster.yaml, and VMs of slices created on demand."""
        slices = self.cluster.slices
        if not slices:
            return self._listed_hosts
        if self._hosts_cache is None or self._hosts_cache[0] != slices:
            self._hosts_cache = slices, {**self._listed_hosts, **hosts_of_slices(slices, self.config)}
        return self._hosts_cache[1]

    @cached_property
    def _listed_hosts(self) -> Mapping[WorkerId, HostConfig]:
        return {host.worker: host for host in self.config.hosts}

    def default_env(self, worker: Worker) -> Mapping[str, str]:
        """Return the configured default environment of the tasks on a worker."""
        host = self.hosts.get(worker.id)
        return host.env if host is not None else self.config.defaults.env

    def reconfigure(self, config: ClusterConfig) -> None:
        """Use a new configuration of the same cluster from now on. Open calls finish with the old configuration."""
        self.config = config
        self._hosts_cache = None
        for name in ("_listed_hosts", "runner"):
            self.__dict__.pop(name, None)

    @property
    def cluster_id(self) -> str:
        """Random id of the log; "" before the log exists."""
        return self._header.cluster_id if self._header is not None else ""

    @cached_property
    def runner(self) -> TaskRunner:
        return self.make_runner(self.cluster_id)

    def view(self) -> Cluster:
        """Read the log without the lock, and return the cluster. Sets `messages` if the log is damaged."""
        self._read_log()
        return self.cluster

    def _read_log(self) -> LogView:
        read_at = (self.clock.now(), self.clock.monotonic())
        with self._explaining_errors():
            try:
                log = self._read_lines()
            except LogReplacedError:
                self.cluster = Cluster()  # the log has lost its last lines or was restored from a copy
                log = self._read_lines()
        self.messages = list(log_messages(log.warnings, log.damage))
        self.damage = log.damage
        self._check_header(log.header)
        if log.cluster is None:
            self._replay(log.transactions)
        else:
            self.cluster = log.cluster
            self._collect(log.transactions)
        if log.committed:
            self._save_snapshot()
        self.read_at = read_at
        return log

    def _read_lines(self) -> LogView:
        with self.progress(lambda: ("reading the log", *self.state.progress)):
            if self.cluster.seq:
                return self.state.read(self.cluster.seq)
            return self.state.load(None if self.new_transactions is None else self._last_collected)

    def _save_snapshot(self) -> None:
        with self.progress(lambda: ("writing the snapshot", 0, 0, "")):
            self.cluster = self.state.save_snapshot(self.cluster)

    def _replay(self, transactions: Sequence[Transaction]) -> None:
        if transactions:
            from iris_cli.core.evolve import replay

            self.cluster = replay(transactions, self.cluster)
        self._collect(transactions)

    def _collect(self, transactions: Sequence[Transaction]) -> None:
        new = [each for each in transactions if each.seq > self._last_collected]
        self._last_collected = max([self._last_collected, *(each.seq for each in new)])
        if self.new_transactions is not None:
            self.new_transactions += new

    def _check_header(self, header: Header | None) -> None:
        known = self._header
        if known is not None and header is not None and known.cluster_id != header.cluster_id:
            message = "the event log was replaced by one of another cluster"
            raise LogDamagedError(message, hint="run the command again")
        self._header = header

    def decide(self, rule: Callable[[Draft], R]) -> R:
        """Call the decision function `rule` on a draft of the newest state, and return its result.

        First, `rule` is called without the lock. If it recorded events, it is called again under the lock. Then the
        events of the second call are committed, and its result is returned. Raises the errors of `transaction`.
        """
        if self._read_log().committed:
            draft = self._draft()
            with self._explaining_errors():
                decided = rule(draft)
            if not draft.events:
                return decided
        with self.transaction() as draft:
            return rule(draft)

    def lock_once(self) -> None:
        """Take the lock unless it was held before, to fail early in a read-only directory. Raises as `transaction`."""
        if not self.has_locked:
            with self.transaction():
                pass

    def _draft(self) -> Draft:
        # Imported here because it imports all events, which read-only commands don't need.
        from iris_cli.core.evolve import Draft

        return Draft(self.cluster, self.clock.now())

    def begin(self) -> None:
        """Read the log, or create the state directory of a new cluster. Raises the errors of `transaction`."""
        if self._header is None:
            self.view()
        if self._header is None:
            self._tell_all(
                self.state.create(self.config.name, command=self.command, timeout=self._lock_timeout())
            )

    @contextmanager
    def transaction(self) -> Iterator[Draft]:
        """Hold the lock, yield a draft of the newest state, and commit the recorded events at the end.

        The first transaction of a new cluster creates its state directory. Nothing is committed if the block
        raises. Raises LockedError, LogDamagedError, NotWritableError, ConfigError.
        """
        self.begin()  # read most of the log before taking the lock
        with self._explaining_errors(), self._locked() as writer:
            self.has_locked = True
            self.read_at = (self.clock.now(), self.clock.monotonic())
            self._check_header(writer.header)
            self._replay(writer.transactions)
            draft = self._draft()
            yield draft
            if draft.events:
                committed = writer.append(draft.events, at=draft.at)
                draft.cluster.seq, draft.cluster.at = committed.seq, committed.at
                self.cluster = draft.cluster
                self.may_need_cycles = True
                self._collect([committed])
        self._save_snapshot()

    @contextmanager
    def _locked(self) -> Iterator[Writer]:
        messages: list[str] = []
        with ExitStack() as stack:
            # Print messages AFTER the lock is released, because printing may block.
            stack.callback(self._tell_all, messages)
            try:
                writer = self._lock(stack)
            except LogReplacedError:
                self.cluster = Cluster()
                self._read_log()
                writer = self._lock(stack)
            messages += writer.messages
            yield writer

    def _lock(self, stack: ExitStack) -> Writer:
        timeout, started_at = self._lock_timeout(), self.clock.monotonic()

        def progress() -> ProgressState:
            if self.clock.monotonic() - started_at < _SHORT_WAIT:
                return "", 0, 0, ""
            holder = self.state.lock_holder()
            name = f"{holder.command!r}, pid {holder.pid}" if holder else "the lock"
            return f"waiting for {name}", 0, 0, ""

        with self.progress(progress):
            return stack.enter_context(self.state.locked(self.command, timeout, after_seq=self.cluster.seq))

    def _lock_timeout(self) -> float:
        """Return the lock timeout in seconds. After the first transaction, it is at least LOCK_TIMEOUT."""
        return max(self.lock_timeout, LOCK_TIMEOUT) if self.has_locked else self.lock_timeout

    def fault(self, doing: str, error: Exception) -> None:
        """Record and print an internal error once, without ending the command.

        The events of an illegal transition are printed after the lock is released, because reading them is slow.
        """
        text = f"{doing}: {type(error).__name__}: {error}"
        if text not in self.faults:
            self.faults.append(text)
            self.tell(f"internal error while {text}; please report it")
            if isinstance(error, IllegalTransitionError):
                self._illegal_transitions.append(error)

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        """If the block raises IllegalTransitionError, add the events of the job, task or worker to the error.

        After the block, print the events for the errors in `_illegal_transitions`.
        """
        try:
            yield
        except IllegalTransitionError as error:
            self._add_story(error)
            raise
        errors, self._illegal_transitions = self._illegal_transitions, []
        for each in errors:
            self._add_story(each)
            self._tell_all(each.story)

    def _add_story(self, error: IllegalTransitionError) -> None:
        from iris_cli.journal.history import add_story

        add_story(error, lambda: self.state.read_history(archive=True))

    def _tell_all(self, messages: Iterable[str]) -> None:
        for message in messages:
            self.tell(message)

    def target(self, worker: Worker) -> Target:
        """Return a worker with its configured connection, or with the connection in the log if it is not configured."""
        from iris_cli.remote.transport import Target

        host = self.hosts.get(worker.id)
        return Target(worker=worker.id, connection=host.connection if host is not None else worker.connection)

    def fan_out(
        self,
        items: Sequence[T],
        act: Callable[[T], R],
        *,
        what: str = "asking",
        noun: str = "worker",
        patience: float | None = None,
    ) -> Iterator[list[R]]:
        """Call `act` for many items in parallel. Yield the results in small batches as they arrive.

        The progress line shows the action `what` ("": no progress line) and `noun`, the word for an item. After
        `patience` seconds without a result, the remaining items are skipped.
        """
        from iris_cli.remote.fan_out import batches

        done = 0
        threads = self.make_fan_out(self.limits.max_dispatch_parallelism)
        with self.progress(lambda: (what, done, len(items), noun)):
            for batch in batches(threads, items, act, patience):
                done += len(batch)
                yield [result for _, result in batch]
