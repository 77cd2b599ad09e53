"""The true world: machines, what their disks remember of attempts, and the processes that really run.

The rules are those of the worker's scripts, call by call; a call is over in an instant, unless it is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages import observations as seen
from iris_cli.core.messages.observations import AttemptReport, ChipHolder, ProbeReport, UnwedgeReport
from iris_cli.core.messages.observations import RemoteState as S
from iris_cli.remote.launch_request import LaunchRequest
from tests.simulation.holdings import FOREIGN, Entry, Facts, Home, Running
from tests.simulation.strands import Scheduler
from tests.simulation.tasks import Behaviour, Fate
from tests.simulation.truth import Truth

_OVER = frozenset({S.EXITED, S.CANCELLED, S.NOSTART, S.STOPPED})
_WAITING = frozenset({S.PREPARING, S.PREPARED})
_NO_INCARNATION = "-"


class Machine:
    """One VM. A re-created VM is another machine; so addresses may lead to others than before."""

    def __init__(
        self, name: str, facts: Facts, key: str, scheduler: Scheduler, truth: Truth, behaviour: Behaviour
    ) -> None:
        self.name = name
        self.facts = facts
        self.key = key
        self.boots = 1
        self.homes: dict[WorkerId, Home] = {}
        self.processes: dict[Token, Running] = {}
        self.exists = True
        self.up_since = scheduler.now  # in the future while it boots
        self.tidy_up()
        self.skew = 0.0
        self._scheduler = scheduler
        self._rng = scheduler.draws(name)
        self._truth, self._behaviour = truth, behaviour
        self._lives = 0

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    @property
    def answers(self) -> bool:
        return self.exists and self._scheduler.now >= self.up_since

    def home(self, worker: WorkerId) -> Home:
        return self.homes.setdefault(worker, Home())

    @property
    def is_starting(self) -> bool:
        """Whether something is being set up here, or waits for the other ranks of its gang."""
        entries = (entry for home in self.homes.values() for entry in home.entries.values())
        return any(entry.state in _WAITING and entry.boot_id == self.boot_id for entry in entries)

    # The calls

    def probe(self, worker: WorkerId) -> ProbeReport:
        home = self.home(worker)
        if not home.incarnation:
            self._lives += 1
            home.incarnation = f"{self.name}-life-{self._lives}"
        return ProbeReport(
            worker=worker,
            boot_id=self.boot_id,
            incarnation=home.incarnation,
            cpus=self.facts.cpus,
            memory=64 << 30,
            disk_free=100 << 30,
            chips=self.facts.chips,
            gpus=self.facts.gpus,
            gpu_variant="A100" if self.facts.gpus else "",
            clock=self._scheduler.now + self.skew,
            uptime=self._scheduler.now - self.up_since,
            metadata=self.facts.metadata,
            tokens=tuple(home.entries),
        )

    def poll(self, worker: WorkerId, tokens: Sequence[Token]) -> seen.WorkerReport:
        home = self.home(worker)
        said = [self._report(home.entries.get(token), token) for token in tokens]
        return seen.WorkerReport(
            worker=worker,
            boot_id=self.boot_id,
            incarnation=home.incarnation or _NO_INCARNATION,
            clock=self._scheduler.now + self.skew,
            uptime=self._scheduler.now - self.up_since,
            attempts=tuple(said),
        )

    def renew(self, worker: WorkerId, tokens: Sequence[Token]) -> None:
        for token in tokens:
            entry = self.home(worker).entries.get(token)
            if entry is not None:
                entry.renewed = self._scheduler.now

    def expects(self, worker: WorkerId, boot_id: str, incarnation: str) -> bool:
        return (boot_id, incarnation) == (self.boot_id, self.home(worker).incarnation)

    def prepare(self, worker: WorkerId, request: LaunchRequest, *, cut: bool = False) -> None:
        home, token = self.home(worker), request.token
        entry = home.entries.setdefault(token, Entry(S.PREPARING, boot_id=self.boot_id, half=True))
        if not entry.half or entry.state is not S.PREPARING or cut:
            return
        entry.half, entry.request = False, request
        if request.exclusive:
            self._truth.prepares(self, token)
        if self.disk_full:
            entry.state, entry.cause = S.NOSTART, "disk"
            self._truth.refuses(token)
        else:
            self._await_chips(home, token, entry, self._scheduler.now + request.device_wait)

    def _await_chips(self, home: Home, token: Token, entry: Entry, until: float) -> None:
        """Its start waits for what it needs, and its set-up with it."""
        request = entry.request
        gone = home.entries.get(token) is not entry or entry.boot_id != self.boot_id or not self.exists
        if request is None or gone or entry.state is not S.PREPARING:
            return
        if request.exclusive and self._chips_held():
            if self._scheduler.now >= until:
                entry.state, entry.cause = S.NOSTART, "chips"
                self._truth.refuses(token)
            else:
                self._scheduler.after(5.0, lambda: self._await_chips(home, token, entry, until))
        elif request.setup:
            self._scheduler.after(self._behaviour.setup_time(), lambda: self._set_up(home, token, entry))
        else:
            self._prepared(entry, token)

    def go(self, worker: WorkerId, token: Token) -> None:
        home = self.home(worker)
        entry = home.entries.get(token)
        if entry is None or entry.state is not S.PREPARED or entry.boot_id != self.boot_id:
            return
        if entry.told_at is None and self._rng.random() < 0.9:  # else there is no room for a name
            entry.told_at = self._scheduler.now
        if entry.told_at is None:
            self._truth.hangs(token)  # as far as can be told
        if self.starts_hang and self._rng.random() < 0.5:
            self._truth.hangs(token)
            return
        slow = self.starts_take_long or self._rng.random() < 0.05
        first, rest = (self._rng.uniform(0.0, 15.0), self._rng.uniform(0.0, 20.0)) if slow else (0.0, 0.0)
        if first:
            self._scheduler.after(first, lambda: self._launch(worker, token, entry, rest))
        else:
            self._launch(worker, token, entry, rest)

    def stop(self, worker: WorkerId, token: Token, grace: float) -> None:
        home = self.home(worker)
        entry = home.entries.get(token)
        self._truth.fences(token)
        if entry is None and token not in self.processes:
            home.entries[token] = Entry(S.STOPPED, boot_id=self.boot_id)
            return
        if entry is None:  # its directory was removed under it
            entry = home.entries[token] = Entry(S.ORPHANED, boot_id=self.boot_id)
        self._refresh(entry)
        if entry.state in _OVER:
            return
        if token not in self.processes:
            entry.state = S.STOPPED
            return
        at = self._scheduler.now + min(grace, self._rng.choice((0.1, 1.0, grace)))
        if entry.state is not S.STOPPING or at < entry.stop_at:
            entry.state, entry.stop_at = S.STOPPING, at
            self._scheduler.at(at, lambda: self._stopped(token, entry, at))

    def unwedge(
        self,
        worker: WorkerId,
        keep: Sequence[Token],
        known: Sequence[Token],
        clear: Sequence[ChipHolder | Token],
    ) -> UnwedgeReport:
        """Who holds chips, and which attempts are here that the caller doesn't know; after stopping those named."""
        home = self.home(worker)
        for each in clear:
            if isinstance(each, ChipHolder):
                self.chips_busy = False
            else:
                self._truth.cleared(each)
                self.stop(worker, each, 5.0)
        strangers = [
            self._report(entry, token)
            for token, entry in home.entries.items()
            if token not in keep and entry.state is not S.STOPPED
        ]
        busy = ChipHolder(boot_id=self.boot_id, pid=4711, start=1, devices=("/dev/accel0",), command="python")
        return UnwedgeReport(
            worker=worker,
            boot_id=self.boot_id,
            incarnation=home.incarnation or _NO_INCARNATION,
            holders=(busy,) if self.chips_busy else (),
            attempts=tuple(each for each in strangers if not (each.token in known and each.state in _OVER)),
        )

    def _prepared(self, entry: Entry, token: Token) -> None:
        entry.state = S.PREPARED
        self._truth.prepared(token)

    def _set_up(self, home: Home, token: Token, entry: Entry) -> None:
        if home.entries.get(token) is not entry or entry.state is not S.PREPARING:
            return
        if entry.boot_id == self.boot_id and self.exists:
            if self._behaviour.setup_succeeds():
                self._prepared(entry, token)
            else:
                entry.state, entry.cause, entry.exit_code = S.NOSTART, "setup", 1
                self._truth.setup_failed(token)

    def _launch(self, worker: WorkerId, token: Token, entry: Entry, takes: float) -> None:
        """Its wrapper wins its start token, unless another one has."""
        if entry.state is S.PREPARED and self._has(worker, token, entry):
            entry.state, entry.signed_at = S.LAUNCHING, self._scheduler.now
            self._step(worker, token, entry, takes)

    def _step(self, worker: WorkerId, token: Token, entry: Entry, left: float) -> None:
        """The wrapper goes on, with a sign of life at each step, if nothing hangs."""
        if entry.state is not S.LAUNCHING or not self._has(worker, token, entry):
            return
        if self.starts_hang:
            self._truth.hangs(token)
            self._scheduler.after(5.0, lambda: self._step(worker, token, entry, left))
            return
        self._sign(entry)
        if left <= 0:
            self._start(worker, token, entry)
        else:
            takes = min(left, self._rng.uniform(0.5, 8.0))
            self._scheduler.after(takes, lambda: self._step(worker, token, entry, left - takes))

    def _has(self, worker: WorkerId, token: Token, entry: Entry) -> bool:
        """Whether its directory is there still, in the same boot: nothing starts without what is in it."""
        there = self.home(worker).entries.get(token) is entry
        return there and entry.boot_id == self.boot_id and self.exists

    def _sign(self, entry: Entry) -> None:
        entry.signed_at = self._scheduler.now

    def _start(self, worker: WorkerId, token: Token, entry: Entry) -> None:
        assert entry.request is not None
        entry.state, entry.began = S.RUNNING, self._scheduler.now
        self.processes[token] = Running(token, worker, entry.request)
        self._truth.started(self, token)
        self.meets(token, self._behaviour.fate(entry.request))
        if entry.request.lease:
            entry.renewed = self._scheduler.now
            self._watch_lease(self.processes[token], entry)

    def _watch_lease(self, process: Running, entry: Entry) -> None:
        due = entry.renewed + process.request.lease
        if self._scheduler.now < due:
            self._scheduler.at(due, lambda: self._watch_lease(process, entry))
        elif self._alive(process) and entry.state is S.RUNNING and process.supervised and not self.unkillable:
            self._scheduler.after(process.request.grace, lambda: self._out_of_lease(process, entry))

    def _out_of_lease(self, process: Running, entry: Entry) -> None:
        if self._alive(process):
            del self.processes[process.token]
            entry.state, entry.cause, entry.ended = S.CANCELLED, "lease", self._scheduler.now
            self._ends(process, "lease")

    def _alive(self, process: Running) -> bool:
        return self.processes.get(process.token) is process

    def meets(self, token: Token, fate: Fate) -> None:
        """What this attempt will come to, if nothing else happens to it before."""
        self._scheduler.after(fate.after, partial(self._exits, self.processes[token], fate))

    def _exits(self, process: Running, fate: Fate) -> None:
        if not self._alive(process) or (self.unkillable and fate.code != 0):
            return
        entry = self.home(process.worker).entries.get(process.token)
        del self.processes[process.token]
        if entry is None or not process.supervised:
            self._ends(process, "was removed during the pull")
            return
        if entry.state is S.STOPPING:
            entry.state, entry.ended = S.STOPPED, self._scheduler.now
            self._ends(process, "stopped")
            return
        entry.state, entry.ended = S.EXITED, self._scheduler.now
        entry.exit_code, entry.cause = fate.code, fate.cause
        self._truth.exited(process.token, fate.code, fate.cause)

    def _stopped(self, token: Token, entry: Entry, at: float) -> None:
        if entry.state is not S.STOPPING or entry.stop_at != at or token not in self.processes:
            return
        if self.unkillable:
            entry.state = S.UNKILLABLE
            return
        process = self.processes.pop(token)
        entry.state, entry.ended = S.STOPPED, self._scheduler.now
        self._ends(process, "stopped")

    def _ends(self, process: Running, how: str) -> None:
        self._truth.ended(process.token, how)

    # What is done to it

    def reboot(self, takes: float = 0.0) -> None:
        self._shut_down()
        self._die("rebooted")
        for home in self.homes.values():
            self._truth.rebooted(home.entries)
        self.boots += 1
        self.up_since = self._scheduler.now + takes
        self.unkillable = False
        self.chips_busy = False

    def _shut_down(self) -> None:
        """Some hosts tell what runs to end, and let it record that: so of those the code says nothing."""
        orderly = self._rng.random() < 0.5
        for process in list(self.processes.values()) if orderly else ():
            entry = self.home(process.worker).entries.get(process.token)
            if entry is not None and entry.state is S.RUNNING and process.supervised:
                # That the wrapper was told, too, is noted: then no code counts in the next boot.
                code = self._rng.choice((None, 1, 143))
                entry.state, entry.exit_code = S.LOST if code is None else S.EXITED, code

    def delete(self) -> None:
        self._die("deleted")
        self.exists = False
        self._truth.records_lost(token for home in self.homes.values() for token in home.entries)

    def wipe(self, worker: WorkerId) -> None:
        """Its iris directory is removed; what runs runs on."""
        home = self.homes.pop(worker, None)
        if home is not None:
            self._truth.records_lost(home.entries)

    def kill_wrapper(self, token: Token, *, all_of_it: bool) -> None:
        process = self.processes[token]
        process.supervised = False
        self._truth.wrapper_killed(token)
        if all_of_it:
            del self.processes[token]
            self._ends(process, "was removed during the pull")

    def abandon(self, worker: WorkerId) -> None:
        """Everything of one worker id is ended by hand."""
        for process in [each for each in self.processes.values() if each.worker == worker]:
            del self.processes[process.token]
            self._ends(process, "ended by hand")

    def tidy_up(self) -> None:
        """Nothing is broken, and no process that iris knows nothing of holds chips."""
        self.disk_full = self.chips_busy = self.unkillable = False
        self.starts_hang = self.starts_take_long = False

    def _die(self, how: str) -> None:
        for process in list(self.processes.values()):
            del self.processes[process.token]
            self._ends(process, how)

    def is_wedged(self, worker: WorkerId) -> bool:
        """Whether something is in the way that iris knows nothing of."""
        return self.chips_busy or FOREIGN in self.home(worker).entries

    def _chips_held(self) -> bool:
        return self.chips_busy or any(process.request.exclusive for process in self.processes.values())

    def _refresh(self, entry: Entry) -> None:
        """What belongs to another boot is over, whatever was going on; and so is what has no process left."""
        if entry.state not in _OVER and entry.boot_id != self.boot_id:
            entry.state = S.LOST

    def _report(self, entry: Entry | None, token: Token) -> AttemptReport:
        if entry is None:
            return AttemptReport(token=token, state=S.ABSENT)
        self._refresh(entry)
        state, process = entry.state, self.processes.get(token)
        if state in (S.RUNNING, S.ORPHANED, S.UNKILLABLE, S.STOPPING) and process is None:
            state = S.LOST if state in (S.RUNNING, S.ORPHANED) else S.STOPPED
        elif state is S.RUNNING and process is not None and not process.supervised:
            state = S.ORPHANED
        here = entry.boot_id == self.boot_id
        since = {S.PREPARED: entry.told_at, S.LAUNCHING: entry.signed_at}.get(state, entry.began)
        return AttemptReport(
            token=token,
            state=state,
            exit_code=entry.exit_code,
            cause=entry.cause,
            started_ago=self._ago(since) if here else None,
            ended_ago=self._ago(entry.ended) if here else None,
            last_output_ago=self._ago(self._behaviour.last_output(entry, token, state, self._scheduler.now)),
        )

    def _ago(self, moment: float | None) -> float | None:
        return None if moment is None else round(self._scheduler.now - moment, 2)
