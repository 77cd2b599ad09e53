"""What must hold between the log and the world, whatever happens. Every violation is told as a breach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_cli.core.events.events import (
    AttemptEnded,
    AttemptEvent,
    AttemptHeldUp,
    AttemptPresumedGone,
    AttemptProvenGone,
    AttemptStopped,
    DispatchTakenOver,
    Event,
    TaskAssigned,
    TaskDispatchFailed,
    TaskRunning,
    Transaction,
    WorkerForgotten,
)
from iris_cli.core.ids import AttemptId, Token, parent_of
from iris_cli.core.invariants import breaches
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import INFRASTRUCTURE, PROGRAM_FAILURES, AttemptState, EndReason
from iris_cli.core.model.worker import WorkerCondition
from tests.simulation.life import Life
from tests.simulation.story import Story

if TYPE_CHECKING:
    from tests.simulation.machines import Machine

_CUT_OFF = 60.0
"""Seconds after which every answer has been weighed that was on its way when the link went down."""

Judge = Callable[[Transaction, Cluster, Cluster, str], None]
"""Given a transaction, the cluster before and after it, and who committed it."""

_ENDS = (AttemptEnded, AttemptStopped, TaskDispatchFailed)


@dataclass
class Truth:
    """Knows both sides. `cluster` is the replayed log."""

    story: Story
    set_ups: dict[Token, str] = field(default_factory=dict)  # of new VMs, and on whom each has begun
    raw: set[str] = field(
        default_factory=set
    )  # machines that are to be set up before anything else runs there
    lives: dict[Token, Life] = field(default_factory=dict)
    by_attempt: dict[AttemptId, Token] = field(default_factory=dict)
    cluster: Cluster = field(default_factory=Cluster)
    on_start: Callable[[Machine, Token], None] = lambda _machine, _token: None
    on_commit: Callable[[Sequence[Event], Cluster], None] = lambda _events, _after: None
    on_end: Callable[[str], None] = lambda _who: None  # of an invocation, in order
    judges: list[Judge] = field(default_factory=list)
    now: Callable[[], float] = lambda: 0.0  # true time
    cut_off_for: Callable[[], float] = lambda: 0.0  # seconds that the operator's own link has been down

    def output_removed(self, tokens: Iterable[Token]) -> None:
        """A worker is asked to remove the files of these attempts."""
        for life in (self.lives[token] for token in tokens):
            if life.where is not None:
                self.story.breach(f"the output of {life.id} is removed, but it lives on {life.where.name}")

    def cleared(self, token: Token) -> None:
        """The operator has an attempt stopped as none of iris's own."""
        life = self.lives.get(token)
        if life is not None and not life.over:
            self.story.breach(f"{life.id} is cleared away, but lives in the log")

    # What the log says

    def committed(self, transaction: Transaction, after: Cluster, who: str) -> None:
        """A transaction is in the log, and this is the cluster with it."""
        self.story.tell(who, transaction)
        before, self.cluster = self.cluster, after
        for event in transaction.events:
            if isinstance(event, TaskAssigned):
                self._assigned(event, who)
            elif isinstance(event, AttemptEvent):
                self._attempt_event(event)
        self._presumptions(transaction)
        for breach in breaches(after):
            self.story.breach(breach)
        for job in after.jobs.values():
            parent = after.jobs.get(parent_of(job.id) or job.id)
            if parent is not None and parent.end is not None and job.end is None:
                self.story.breach(f"{job.id} is open, but its parent has ended")
        self._charges(before)
        self._siblings(transaction)
        for judge in self.judges:
            judge(transaction, before, after, who)
        self.on_commit(transaction.events, after)

    def _assigned(self, event: TaskAssigned, who: str) -> None:
        job = self.cluster.jobs[event.task.job]
        attempt = self.cluster.attempt(event.attempt_id)
        device = job.resources.device
        self.lives[event.token] = Life(
            id=event.attempt_id,
            worker=event.worker,
            boot_id=self.cluster.workers[event.worker].boot_id,
            round=attempt.round,
            gang=job.is_gang,
            exclusive=device is not None and device.kind == "tpu",
            cpu_millis=job.resources.cpu_millis,
            gpus=event.gpus,
            assigner=who,
        )
        self.by_attempt[event.attempt_id] = event.token

    def _attempt_event(self, event: AttemptEvent) -> None:
        life = self.life_of(event.attempt_id)
        if isinstance(event, DispatchTakenOver):
            life.taken_over = True
        elif isinstance(event, TaskRunning) and not life.started:
            self.story.breach(f"{life.id} is RUNNING in the log, but never started")
        elif isinstance(event, AttemptHeldUp) and not life.hung:
            self.story.breach(f"{life.id} is held up in the log, but its host was only slow")
        elif isinstance(event, AttemptPresumedGone):
            life.presumed, life.over_by_lease = not event.by_lease, event.by_lease
        elif isinstance(event, AttemptProvenGone) and life.where is not None:
            self.story.breach(f"{life.id} is proven gone in the log, but lives on {life.where.name}")
        elif isinstance(event, _ENDS):
            life.over = True
            if not life.presumed:
                self._ended_by_proof(event, life)

    def _presumptions(self, transaction: Transaction) -> None:
        """Without the operator's word nobody is presumed gone while it is us who are cut off."""
        presumed = [event for event in transaction.events if isinstance(event, AttemptPresumedGone)]
        gone = [event for event in presumed if not event.by_lease]  # a lease ends where nobody can ask
        by_word = any(isinstance(event, WorkerForgotten) for event in transaction.events)
        if gone and not by_word and self.cut_off_for() > _CUT_OFF:
            self.story.breach(f"{gone[0].attempt_id} is presumed gone, but the operator's machine is cut off")

    def _ended_by_proof(self, event: Event, life: Life) -> None:
        unwatched = life.over_by_lease and (not life.supervised or (life.where and life.where.unkillable))
        if life.where is not None and not unwatched:
            self.story.breach(f"{life.id} has ended in the log, but lives on {life.where.name}")
        if isinstance(event, TaskDispatchFailed) and life.started and not life.misfortune:
            self.story.breach(f"{life.id} is recorded as not started, but has started")
        if not isinstance(event, AttemptEnded):
            return
        reason, code = event.end.reason, event.end.exit_code
        if life.over_by_lease:  # that proves that it is over, not how it ended
            life.record_lost, life.misfortune = True, life.misfortune or "nobody could ask how it ended"
        if reason is EndReason.SETUP_FAILED:
            right = life.setup_failed
        elif reason is EndReason.OK or reason in PROGRAM_FAILURES or reason is EndReason.TIMEOUT:
            right = (life.code, reason is EndReason.TIMEOUT) == (code, life.cause == "timeout")
        else:
            right = reason not in INFRASTRUCTURE or (bool(life.misfortune) and life.started)
        if not right:
            said = f"{reason} {code if code is not None else ''}".strip()
            self.story.breach(
                f"{life.id} ended as {said}; in truth: code {life.code} {life.cause}, {life.misfortune or 'no harm'}"
                f"{'' if life.started else ', never started'}"
            )

    def _siblings(self, transaction: Transaction) -> None:
        """Once a round can't succeed, the stops of all live siblings are committed with it."""
        for event in transaction.events:
            if not isinstance(event, (AttemptEnded, TaskDispatchFailed)):
                continue
            job = self.cluster.jobs[event.task.job]
            if not job.is_gang or (isinstance(event, AttemptEnded) and event.end.reason is EndReason.OK):
                continue
            for attempt_id, attempt in self.cluster.live_attempts_of(job.id):
                if attempt.state is not AttemptState.STOPPING and self._same_round(attempt_id, event):
                    self.story.breach(
                        f"{event.attempt_id} ended badly, but {attempt_id} is not being stopped"
                    )

    def _same_round(self, attempt_id: AttemptId, event: AttemptEvent) -> bool:
        return self.life_of(attempt_id).round == self.life_of(event.attempt_id).round

    def life_of(self, attempt_id: AttemptId) -> Life:
        """What became of an attempt."""
        return self.lives[self.by_attempt[attempt_id]]

    def _charges(self, before: Cluster) -> None:
        """Budgets are charged once for each attempt or round that ended by such a fault, and not otherwise."""
        for job in self.cluster.jobs.values():
            if job is before.jobs.get(job.id) and not job.is_gang and self.cluster.seq % 8:
                continue
            charged = job.failed_rounds + job.preempted_rounds
            if charged > job.settled_rounds or job.settled_rounds > job.rounds:
                self.story.breach(
                    f"{job.id}: {charged} charges for {job.settled_rounds} of {job.rounds} rounds"
                )
            for task in self.cluster.tasks_of(job.id):
                ends = [attempt.end.reason for attempt in task.attempts if attempt.end is not None]
                if task.failures > sum(reason in PROGRAM_FAILURES for reason in ends):
                    self.story.breach(f"{task.id}: {task.failures} failures charged, its attempts: {ends}")
                if task.preemptions > sum(reason in INFRASTRUCTURE for reason in ends):
                    self.story.breach(
                        f"{task.id}: {task.preemptions} preemptions charged, its attempts: {ends}"
                    )

    # What is sent

    def sent(self, who: str, token: Token, durable: bytes) -> None:
        """Somebody is about to send a launch."""
        if token in self.set_ups:
            return
        life = self.lives.get(token)
        if token.encode() not in durable:
            self.story.breach(
                f"{who} sends {life.id if life else token[:8]}, but its assignment is not on the disk"
            )
        if life is None:
            return
        attempt = self.cluster.attempt(life.id)
        if life.assigner != who and not (attempt.taken_over or attempt.acknowledged or life.over):
            self.story.breach(
                f"{who} sends {life.id}, which {life.assigner} assigned, without taking it over"
            )

    def ended_in_order(self, who: str, lease: float, now: float) -> None:
        """An invocation has ended, and was not killed: nothing that it assigned has to wait for its lease."""
        self.on_end(who)
        for life in (each for each in self.lives.values() if each.assigner == who and not each.over):
            attempt = self.cluster.attempt(life.id)
            known = attempt.acknowledged or attempt.taken_over or attempt.state is not AttemptState.ASSIGNED
            trusted = self.cluster.workers[attempt.worker].condition is not WorkerCondition.UNTRUSTED
            if trusted and not known and 0 <= now - attempt.assigned_at < lease:
                self.story.breach(f"{who} has ended, but leaves {life.id} in limbo")

    # What happens in the world

    def prepares(self, machine: Machine, token: Token) -> None:
        """A launch that wants the chips for itself has arrived."""
        for other in machine.processes:
            life = self.lives.get(other)
            if other != token and life is not None and life.exclusive:
                self.story.breach(
                    f"{machine.name}: chips are asked for {self._name(token)}, {life.id} holds them"
                )

    def prepared(self, token: Token) -> None:
        if token in self.lives:
            self.lives[token].prepared = True

    def refuses(self, token: Token) -> None:
        if token in self.lives:
            self.lives[token].refused = True

    def fences(self, token: Token) -> None:
        if token in self.lives:
            self.lives[token].fenced = True

    def hangs(self, token: Token) -> None:
        if token in self.lives:
            self.lives[token].hung = True

    def setup_failed(self, token: Token) -> None:
        if token in self.lives:
            self.lives[token].setup_failed = True

    def exited(self, token: Token, code: int, cause: str) -> None:
        if token in self.set_ups and code == 0:
            self.raw.discard(self.set_ups[token].partition(" ")[0])
        life = self.lives.get(token)
        if life is not None:
            life.where, life.code, life.cause, life.ended_at = None, code, cause, self.now()

    def ended(self, token: Token, how: str) -> None:
        """Its processes are gone, and not by their own doing."""
        life = self.lives.get(token)
        if life is not None:
            life.where = None
            if how != "stopped":
                life.misfortune = life.misfortune or how

    def wrapper_killed(self, token: Token) -> None:
        if token in self.lives:
            life = self.lives[token]
            life.supervised, life.misfortune = False, life.misfortune or "its wrapper was killed"

    def rebooted(self, tokens: Iterable[Token]) -> None:
        """What ended badly before a reboot, and was not heard of yet, may be blamed on it. A success is one."""
        for token in tokens:
            life = self.lives.get(token)
            if life is not None and not life.over and life.code != 0 and life.cause != "timeout":
                life.misfortune = life.misfortune or "rebooted"

    def records_lost(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            if token in self.lives:
                life = self.lives[token]
                life.record_lost = True
                life.misfortune = life.misfortune or "its record was lost"

    def started(self, machine: Machine, token: Token) -> None:
        """The command of an attempt starts to run, or the set-up of a VM."""
        life = self.lives.get(token)
        self.story.tell(machine.name, ("starts", self._name(token)))
        if token in self.set_ups:
            self._set_up(machine, token)
            return
        if machine.name in self.raw:
            self.story.breach(f"{machine.name} starts {self._name(token)}, but is not set up")
        if life is None:
            self.story.breach(f"{machine.name} starts {token[:8]}, which was never assigned")
            return
        if life.started:
            self.story.breach(f"{life.id} starts a second time")
        if life.over and not life.presumed:
            self.story.breach(f"{life.id} starts on {machine.name}, but has ended in the log")
        life.started, life.where, life.started_at = True, machine, self.now()
        self.on_start(machine, token)
        self._alone(machine, life)
        self._room(machine, life)
        if life.gang:
            self._together(life)

    def _set_up(self, machine: Machine, token: Token) -> None:
        """Once, but for a host whose iris directory was removed: nobody can tell it from another one."""
        whose = f"{machine.name} {machine.home(machine.processes[token].worker).incarnation}"
        if whose in self.set_ups.values():
            self.story.breach(f"{machine.name} is set up a second time")
        self.set_ups[token] = whose

    def _alone(self, machine: Machine, life: Life) -> None:
        for other in self.lives.values():
            if other is life or other.id.task.job != life.id.task.job:
                continue
            if other.where is not None and not other.presumed:
                if other.id.task == life.id.task:
                    self.story.breach(
                        f"{life.id} starts on {machine.name}, {other.id} lives on {other.where.name}"
                    )
                elif life.gang and other.round != life.round:
                    self.story.breach(
                        f"{life.id} of round {life.round} starts, {other.id} of {other.round} lives"
                    )
            succeeded = other.id.task == life.id.task and other.code == 0
            if succeeded and not (life.gang or other.record_lost or other.presumed):
                self.story.breach(f"{life.id} starts, but {other.id} has succeeded")

    def _room(self, machine: Machine, life: Life) -> None:
        tenants, cpu, gpus = 0, 0, list[int]()
        for token in machine.processes:
            other = self.lives.get(token)
            if other is None or other.worker != life.worker:
                continue
            if other.over and not other.presumed:
                self.story.breach(
                    f"{life.id} starts on {machine.name} beside {other.id}, which has ended in the log"
                )
            tenants += other.exclusive
            cpu += other.cpu_millis
            gpus += other.gpus
        if tenants > 1:
            self.story.breach(f"{machine.name}: {tenants} attempts hold its chips")
        if len(set(gpus)) < len(gpus) or any(gpu >= machine.facts.gpus for gpu in gpus):
            self.story.breach(f"{machine.name}: the GPUs {gpus} are in use, of {machine.facts.gpus}")
        if cpu > machine.facts.cpus * 1000:
            self.story.breach(
                f"{machine.name}: {cpu} of {machine.facts.cpus * 1000} thousandths of a core are in use"
            )

    def _together(self, life: Life) -> None:
        ranks = [
            other
            for other in self.lives.values()
            if other.id.task.job == life.id.task.job and other.round == life.round
        ]
        unready = [str(rank.id.task) for rank in ranks if not (rank.prepared or rank.started)]
        job = self.cluster.jobs[life.id.task.job]
        if unready or len(ranks) != job.replicas:
            self.story.breach(
                f"{life.id} starts, but not all of its gang are prepared: {unready or len(ranks)}"
            )

    def _name(self, token: Token) -> str:
        life = self.lives.get(token)
        return str(life.id) if life is not None else token[:8]

    # The end

    def after_healing(self) -> None:
        """With everything mended for long: nothing lives that the log calls over."""
        for life in self.lives.values():
            if life.where is not None and life.over:
                self.story.breach(f"{life.id} has ended in the log, but still lives on {life.where.name}")
