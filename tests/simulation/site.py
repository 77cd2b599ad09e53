"""The operator's side: a state directory, a configuration, a clock that may be wrong, and invocations of the tool."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Generic, TypeVar, cast

from iris_cli.capacity.provider import SliceProvider
from iris_cli.config.schema import ClusterConfig
from iris_cli.core.events.events import Transaction
from iris_cli.core.evolve import replay
from iris_cli.core.messages.cloud import Scope
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.slice import SliceOwner
from iris_cli.errors import IrisError, LogDamagedError, LogReplacedError
from iris_cli.journal.log.record import LogRecord
from iris_cli.journal.snapshot.cache import EVERY_LINES
from iris_cli.journal.state_dir import LogView, StateDir
from iris_cli.ops.session import Session
from iris_cli.remote.task_runner import TaskRunner
from tests.simulation.conduct import Conduct
from tests.simulation.disk import Medium, SimDisk
from tests.simulation.placements import Placements
from tests.simulation.story import Story
from tests.simulation.strands import Bell, Killed, Luck, Process, Scheduler
from tests.simulation.truth import Truth
from tests.simulation.verdicts import Verdicts
from tests.simulation.wires import Network, SimRunner

R = TypeVar("R")

_LINGER = 0.05
_FAIR = Luck()


class SimClock:
    """The operator's clock: simulated time, and by how much it is wrong."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.ahead = 0.0
        self.was_set = False

    def set_ahead(self, seconds: float) -> None:
        """Set it wrong, or right again."""
        self.ahead, self.was_set = seconds, True

    def now(self) -> float:
        return round(self._scheduler.now + self.ahead, 3)

    def monotonic(self) -> float:
        """Stands still while the machine sleeps."""
        return self._scheduler.now - self._scheduler.slept

    def sleep(self, seconds: float) -> None:
        strand = self._scheduler.current
        assert strand is not None
        strand.pause(seconds)


class Strands(Generic[R]):
    """A fan-out of strands: what threads are to a real invocation."""

    def __init__(self, process: Process) -> None:
        strand = process.scheduler.current
        assert strand is not None
        self._process = process
        self._bell = Bell(strand)
        self._arrived: list[R] = []
        self._errors: list[Exception] = []
        self._under_way = 0
        self._open = True

    def submit(self, act: Callable[[], R]) -> None:
        self._under_way += 1

        def body() -> None:
            try:
                result = act()
            except Exception as error:
                self._errors.append(error)
            else:
                self._arrived.append(result)
            self._under_way -= 1
            self._bell.ring(_LINGER)

        self._process.spawn(body)

    def take(self, patience: float | None = None) -> list[R]:
        """What has arrived, or else what comes next; waits for that up to `patience` seconds."""
        if not (self._arrived or self._errors) and self._under_way:
            self._bell.wait(patience)
        if not self._arrived and self._errors:
            raise self._errors.pop(0)
        taken, self._arrived = self._arrived, []
        return taken

    def close(self) -> None:
        """What is under way may still happen; nobody waits for it."""
        self._arrived = []


_OWNER = SliceOwner(place="here", where="the only one")
_SNAPSHOT_EVERY = (1, 7, EVERY_LINES, EVERY_LINES, EVERY_LINES)
"""Lines after which invocations write a snapshot, by turns."""


class Drawn:
    """The randomness of a session: drawn from the seed, so that each run can be repeated."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def hexadecimal(self, size: int) -> str:
        return f"{self._rng.getrandbits(8 * size):0{2 * size}x}"

    def between(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)


class Site:
    """Where the operator works. `processes` are the invocations that run now."""

    def __init__(
        self, state: Path, config: ClusterConfig, network: Network, story: Story, scheduler: Scheduler
    ) -> None:
        self.scheduler = scheduler
        self.network = network
        self.story = story
        self.config = config
        self.clock = SimClock(scheduler)
        self.truth = Truth(story, cut_off_for=network.cut_off_for, now=lambda: scheduler.now)
        self.conduct = Conduct(
            self.truth,
            config.limits,
            config.replace_lost,
            now=lambda: scheduler.now,
            steady=lambda: not (self.clock.was_set or scheduler.slept),
            prompt=self._is_prompt,
        )
        verdicts = Verdicts(story.breach, config.limits, self.conduct.asked_by)
        self.truth.judges += [
            verdicts.judge,
            Placements(story.breach, config.limits).judge,
            self.conduct.judge,
        ]
        self.medium = Medium(
            state, scheduler.draws("disk"), self._committed, self._snapshot_written, self._head_leads
        )
        self.processes: list[Process] = []
        self._known: dict[str, Process] = {}  # also those that have ended
        self.providers: Callable[[Process, Scope], SliceProvider] | None = None
        self._state = state
        self._auditor = StateDir(state, now=self.clock.now, actor="auditor")
        self._seen = Cluster()
        self._acknowledged: dict[int, str] = {}
        self._by_crc: dict[str, Cluster] = {}
        self._number = 0

    def invoke(
        self,
        command: str,
        act: Callable[[Session], object],
        *,
        luck: Luck = _FAIR,
        patience: float = 10.0,
    ) -> Process:
        """Start an invocation that does this, and may be killed at one of its steps."""
        self._number += 1
        process = Process(self.scheduler, f"{command}#{self._number}", luck)
        session = self._session(process, patience)

        def body() -> None:
            failures = self.medium.failures
            try:
                act(session)
                if self.medium.failures == failures:  # else its last words may be lost, and its lease decides
                    self.truth.ended_in_order(process.name, session.limits.dispatch_lease, self.clock.now())
                if session.faults:
                    self._breach(process.name, "; ".join(session.faults))
            except Killed:
                self.story.tell(process.name, "is killed")
                raise
            except IrisError as error:
                said = f"{type(error).__name__}: {error.message}".replace(str(self._state), "")
                # What it has read was never committed, and is gone with the power: it says so, and ends.
                harmless = not isinstance(error, LogDamagedError) or "no longer the log" in said
                (self.story.tell if harmless else self._breach)(process.name, said)
            except Exception as error:  # whatever it is, the tool must not fail like that
                self.story.breach(f"{process.name} failed: {error!r}")
                self.story.tell(process.name, "".join(traceback.format_exception(error)))

        self.story.tell(process.name, "begins")
        process.spawn(body)
        self.processes = [each for each in self.processes if each.running and not each.dead]
        self.processes.append(process)
        self._known[process.name] = process
        return process

    def _is_prompt(self, who: str) -> bool:
        return who not in self._known or not self._known[who].stalled_until

    def _breach(self, who: str, what: str) -> None:
        self.story.breach(f"{who}: {what}")

    def view(self) -> Session:
        """What somebody sees who only looks."""
        return Session(
            state=StateDir(self._state, now=self.clock.now, actor="looking on"),
            config=self.config,
            make_runner=lambda _: cast("TaskRunner", None),
            clock=self.clock,
        )

    def _session(self, process: Process, patience: float) -> Session:
        disk = SimDisk(self.medium, self.scheduler)
        return Session(
            state=StateDir(
                self._state,
                now=self.clock.now,
                actor=process.name,
                disk=disk,
                snapshot_every=_SNAPSHOT_EVERY[self._number % len(_SNAPSHOT_EVERY)],
            ),
            config=self.config,
            make_runner=lambda _: cast(
                "TaskRunner", SimRunner(self.network, process, self.truth, self.medium, self.conduct)
            ),
            clock=self.clock,
            randomness=Drawn(self.scheduler.draws("product")),
            slice_owner=_OWNER,
            command="",
            lock_timeout=patience,
            make_fan_out=lambda _: Strands(process),
            make_provider=lambda scope, _: self._provider(process, scope),
        )

    def _provider(self, process: Process, scope: Scope) -> SliceProvider:
        assert self.providers is not None, "nobody makes slices here"
        return self.providers(process, scope)

    def kill_all(self) -> None:
        for process in self.processes:
            process.kill()
        self.processes = []

    # The auditor: reads the log as anybody may, at once after every commit

    def _committed(self, seq: int, crc: str) -> None:
        strand = self.scheduler.current
        self._acknowledged[seq] = crc
        self.audit(strand.process.name if strand is not None else "nobody", seq)

    def _head_leads(self, seq: int) -> None:
        self.story.breach(f"HEAD names line {seq}, but not all of the log is on the disk")

    def _snapshot_written(self) -> None:
        cluster = self.view().view()
        if cluster.seq == self._seen.seq and cluster != self._seen:
            self.story.breach("the snapshot, and the log behind it, give another cluster than the log")

    def audit(self, who: str, committed: int) -> None:
        """Take in what is new in the log up to that line. A line behind it may still be taken back by its writer."""
        try:
            log = self._read_on()
        except IrisError as error:
            self.story.breach(f"the log can't be read on: {error.message}".replace(str(self._state), ""))
            return
        if log.damage is not None:
            self.story.breach(log.damage.what.replace(str(self._state), ""))
        for record in log.transactions:
            if record.seq > committed:
                break
            self._seen = replay([record], self._seen)
            if isinstance(record, LogRecord):
                self._by_crc[record.crc] = self._seen
            self.truth.committed(record, self._seen, record.actor.strip() or who)

    def _read_on(self) -> LogView:
        """The log behind what was taken in. Read from its start where a line was taken back that had been read."""
        try:
            return self._auditor.read(self._seen.seq)
        except LogReplacedError:
            self._auditor = StateDir(self._state, now=self.clock.now, actor="auditor")
            return self._auditor.read(self._seen.seq)

    def replay(self, transactions: Iterable[Transaction], start: Cluster | None = None) -> Cluster:
        """As `evolve.replay`; but what every invocation replays from the first line on is replayed once for all."""
        last = transactions[-1] if isinstance(transactions, Sequence) and transactions else None
        if isinstance(last, LogRecord) and last.crc in self._by_crc and (start is None or start.seq == 0):
            return self._by_crc[last.crc]
        return replay(transactions, start)

    def nothing_is_lost(self) -> None:
        """Every line that was acknowledged is still in the log, and all of them tell the same as before."""
        log = StateDir(self._state, now=self.clock.now, actor="auditor").read()
        crcs = {record.seq: record.crc for record in log.transactions if isinstance(record, LogRecord)}
        for seq, crc in self._acknowledged.items():
            if crcs.get(seq) != crc:
                self.story.breach(f"line {seq} of the log was acknowledged, but is lost")
                return
        until = self._seen.seq
        told = replay(record for record in log.transactions if record.seq <= until)
        if told != self._seen:
            self.story.breach(
                "replaying the log gives another cluster than the one that was told step by step"
            )
