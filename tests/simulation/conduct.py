"""How invocations treat workers: whom they call and when, what they send, and what they make of silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from iris_cli.core.constraints import PREEMPTIBLE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY, AttributeValue
from iris_cli.core.events.events import (
    AttemptEnded,
    AttemptEvent,
    AttemptPresumedGone,
    DispatchTakenOver,
    Event,
    TaskDispatchFailed,
    TaskRunning,
    Transaction,
    WorkerConditionChanged,
    WorkerForgotten,
    WorkerQuarantined,
)
from iris_cli.core.evolve import evolve
from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import WorkerReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import AttemptState, EndReason
from iris_cli.core.model.worker import Worker, WorkerCondition
from tests.simulation.life import Life
from tests.simulation.truth import Truth

C = WorkerCondition

_TROUBLE = (AttemptPresumedGone, DispatchTakenOver, TaskDispatchFailed)

_BY_HAND = ("probe", "accept", "order", "unwedge", "forget", "cancel")
"""Commands that call a worker whatever its back-off."""

_READ_BEFORE = 45.0
"""Seconds within which an invocation may act on what it read before the last line was written."""

_TOLERANCE = 3.0
"""Seconds that an answer may be under way, and that clocks round."""

_WITNESS = 150.0
"""Seconds within which another worker must have answered."""


@dataclass
class Conduct:
    """`now`: true time. `steady`: whether no clock was set and no machine slept so far, so that times agree.

    `prompt`: whether an invocation was never stopped, so that it acts on what it has just read.
    """

    truth: Truth
    limits: Limits
    policy: ReplaceLost
    now: Callable[[], float]
    steady: Callable[[], bool]
    prompt: Callable[[str], bool]
    quiet: bool = False  # no fault is drawn, and no invocation killed: no worker falls silent
    asked: dict[str, set[WorkerId]] = field(default_factory=dict)  # polls that are under way, by invocation
    answered_at: dict[WorkerId, float] = field(default_factory=dict)  # by the machine that is in the log
    on_poll: Callable[[str, WorkerReport], None] = lambda _who, _report: None
    heard: dict[str, set[WorkerId]] = field(default_factory=dict)  # who answered an invocation, as anybody

    def _breach(self, words: str) -> None:
        self.truth.story.breach(words)

    def asked_by(self, who: str) -> set[WorkerId]:
        """The workers whose answer to a poll of this invocation is under way."""
        return self.asked.get(who, set())

    # Calls

    def calls(self, who: str, name: str, worker: WorkerId) -> None:
        """An invocation calls a worker."""
        if name == "poll":
            self.asked.setdefault(who, set()).add(worker)
        known = self.truth.cluster.workers.get(worker)
        if known is None or known.unwell is None or not (self.prompt(who) and self.steady()):
            return
        cools = 0 < known.cooldown_until - self.now() <= self.limits.backoff_max
        by_hand = who.startswith(_BY_HAND)
        if (
            cools
            and not by_hand
            and self.now() - known.unwell.last > _READ_BEFORE
            and not self._stands_witness(known)
        ):
            self._breach(f"{who} calls {worker}, which is {known.condition} and to be left alone")

    def _stands_witness(self, worker: Worker) -> bool:
        """Whether the verdict on a round waits for what this worker says."""
        attempts = [self.truth.cluster.attempt(each) for each in worker.claims]
        return any(each.stop is not None and each.stop.reason is EndReason.SIBLING for each in attempts)

    def answers(self, who: str, name: str, worker: WorkerId, identity: tuple[str, str] | None) -> None:
        """The call has returned; `identity` is the boot and the incarnation that answered, None if nobody did."""
        if name == "poll":
            self.asked.get(who, set()).discard(worker)
        if identity is None:
            return
        self.heard.setdefault(who, set()).add(worker)
        known = self.truth.cluster.workers.get(worker)
        if known is not None and known.condition is not C.UNTRUSTED and known.incarnation == identity[1]:
            self.answered_at[worker] = self.now()

    def stops(self, who: str, worker: WorkerId, token: Token, grace: float) -> None:
        """An invocation orders a worker to stop an attempt."""
        life = self.truth.lives.get(token)
        if life is None:
            return
        job = self.truth.cluster.jobs[life.id.task.job]
        attempt = self.truth.cluster.attempt(life.id)
        given_up = attempt.stop is not None and attempt.stop.reason is EndReason.DISPATCH_FAILED
        if grace != job.grace and not (given_up and grace == 0.0):
            self._breach(f"{who} stops {life.id} within {grace}, its job has a grace of {job.grace}")
        if attempt.live and attempt.stop is None:
            self._breach(f"{who} stops {life.id}, but the log has no order to stop it")

    def renews(self, who: str, worker: WorkerId) -> None:
        """An invocation sends a poll that renews the leases of a worker."""
        known = self.truth.cluster.workers.get(worker)
        silent = known.unwell if known is not None else None
        late = silent is not None and self.now() - silent.last > _READ_BEFORE
        if known is not None and late and self.prompt(who) and self.steady():
            self._breach(f"{who} renews the leases on {worker}, which is {known.condition}")

    def launches(self, who: str, tokens: Sequence[Token]) -> None:
        """An invocation is about to send launches. What it assigned itself it sends within its lease."""
        for life in (self.truth.lives[token] for token in tokens if token in self.truth.lives):
            life.senders.add(who)
            attempt = self.truth.cluster.attempt(life.id)
            held_for = self.now() - attempt.assigned_at
            known = attempt.taken_over or attempt.acknowledged or life.over
            if (
                self.steady()
                and self.prompt(who)
                and life.assigner == who
                and not known
                and held_for >= self.limits.dispatch_lease
            ):
                self._breach(
                    f"{who} sends {life.id} {held_for:.1f} s after it assigned it: its lease is over"
                )

    # What the log says

    def judge(self, transaction: Transaction, before: Cluster, after: Cluster, who: str) -> None:
        """Report what a transaction makes of the calls, and should not."""
        for event in transaction.events if self.quiet else ():
            self._is_expected(event, who)
        by_word = any(isinstance(event, WorkerForgotten) for event in transaction.events)
        for place, event in enumerate(transaction.events):
            if isinstance(event, AttemptPresumedGone) and not event.by_lease and not by_word:
                self._presumed(event, before, after, who)
            elif isinstance(event, DispatchTakenOver):
                self._taken_over(self.truth.life_of(event.attempt_id), transaction.at, after, who)
            elif isinstance(event, TaskRunning):
                life = self.truth.life_of(event.attempt_id)
                if not _rebooted(life, after):
                    self._time(life, "started", event.started_at, life.started_at, who)
            elif isinstance(event, AttemptEnded):
                life = self.truth.life_of(event.attempt_id)
                told = event.end.exit_code is not None and life.code == event.end.exit_code
                if told and not life.misfortune and not _rebooted(life, after):
                    self._time(life, "ended", event.end.at, life.ended_at, who)
            elif isinstance(event, TaskDispatchFailed):
                self._not_started(event, transaction.at, after, who)
            elif isinstance(event, WorkerConditionChanged):
                self._condition(event, before, after, transaction.at, who)
            elif isinstance(event, WorkerQuarantined) and event.lifted:
                served = transaction.at - before.workers[event.worker].quarantined_at
                if 0 <= served < self.limits.quarantine_retry:
                    self._breach(f"the quarantine of {event.worker} is lifted after {served:.0f} s")
                then = evolve(
                    before, transaction.events[:place], transaction.at
                )  # more may be stopped after it
                if event.worker in then.ghosts or _stopping(then, then.workers[event.worker]):
                    self._breach(
                        f"the quarantine of {event.worker} is lifted, but something there is being stopped"
                    )
        for worker in after.workers.values():
            if worker is before.workers.get(worker.id) or worker.quarantined:
                continue
            if worker.refusals >= self.limits.quarantine_after:
                self._breach(f"{worker.id} has refused {worker.refusals} launches, but is not quarantined")
            for each in worker.claims:
                if after.attempt(each).unkillable and not _was_unkillable(before, each):
                    self._breach(f"{each} can't be killed, but {worker.id} is not quarantined")

    def _is_expected(self, event: Event, who: str) -> None:
        """In a quiet run nothing is lost, silent or refused, unless a start takes long."""
        about = self.truth.life_of(event.attempt_id) if isinstance(event, AttemptEvent) else None
        unwell = isinstance(event, WorkerConditionChanged) and event.condition is not C.HEALTHY
        left = isinstance(event, DispatchTakenOver) and about is not None and who == about.assigner  # Ctrl-C
        if unwell or (isinstance(event, _TROUBLE) and not (left or (about and about.hung))):
            self._breach(f"{event} in a run without faults")

    def _time(self, life: Life, what: str, told: float, true: float, who: str) -> None:
        """Times come from the records of the workers, not from when an invocation asked."""
        if self.steady() and self.prompt(who) and true and abs(told - true) > _TOLERANCE:
            self._breach(f"{life.id} {what} {told - true:+.1f} s from its true time in the log")

    def _presumed(self, event: AttemptPresumedGone, before: Cluster, after: Cluster, who: str) -> None:
        attempt = after.attempt(event.attempt_id)
        worker, job = before.workers[attempt.worker], after.jobs[event.task.job]
        wanted = job.replace_lost or self.policy
        preemptible = worker.attributes.get(PREEMPTIBLE_ATTRIBUTE_KEY) == AttributeValue("true")
        if wanted is ReplaceLost.NEVER or (wanted is ReplaceLost.PREEMPTIBLE and not preemptible):
            self._breach(f"{event.attempt_id} is presumed gone, but its job must not be replaced")
        if attempt.unkillable:
            self._breach(f"{event.attempt_id} is presumed gone, but is known to live")
        fleet = [each for each in before.workers.values() if each.incarnation]
        silent = [
            each for each in fleet if each.condition not in (C.HEALTHY, C.AUTH_FAILED) and each.failed_polls
        ]
        if len(silent) * 2 > len(fleet) + 1:  # one of them may have answered since
            self._breach(
                f"{event.attempt_id} is presumed gone, but {len(silent)} of {len(fleet)} workers are silent"
            )
        if not self.steady():
            return
        silent_for = self.now() - self.answered_at.get(worker.id, 0.0)
        if silent_for < self.limits.worker_lost_after:
            self._breach(
                f"{event.attempt_id} is presumed gone, but {worker.id} answered {silent_for:.0f} s ago"
            )
        if not self.prompt(who):
            return  # it acts on answers as old as its stop was long
        witnesses = [
            each for each in self.answered_at if each != worker.id and not _same_slice(before, each, worker)
        ]
        if self.now() - max((self.answered_at[each] for each in witnesses), default=0.0) > _WITNESS:
            self._breach(f"{event.attempt_id} is presumed gone, but no other worker answered")

    def _taken_over(self, life: Life, at: float, after: Cluster, who: str) -> None:
        """Before the lease is over nobody else takes over what an invocation has assigned."""
        assigned_for = at - after.attempt(life.id).assigned_at
        if who not in (life.assigner, *life.senders) and 0 <= assigned_for < self.limits.dispatch_lease:
            self._breach(f"{who} takes over {life.id} of {life.assigner} after {assigned_for:.1f} s")

    def _not_started(self, event: TaskDispatchFailed, at: float, after: Cluster, who: str) -> None:
        """Only who assigned an attempt may say that it was not sent, within its lease; else the worker said so."""
        life, attempt = self.truth.life_of(event.attempt_id), after.attempt(event.attempt_id)
        if event.refused and not (life.refused or life.hung):
            self._breach(f"{life.id} was refused in the log, but its worker did not refuse it")
        if (
            _rebooted(life, after)
            or life.misfortune
            or life.fenced
            or life.refused
            or life.hung
            or life.presumed
        ):
            return
        mine = who == life.assigner and 0 <= at - attempt.assigned_at < self.limits.dispatch_lease
        if not mine or attempt.taken_over:
            self._breach(
                f"{who} gives up {life.id} of {life.assigner}, but nothing shows that it will not start"
            )

    def _condition(
        self, event: WorkerConditionChanged, before: Cluster, after: Cluster, at: float, who: str
    ) -> None:
        was = before.workers.get(event.worker)
        if was is None:
            return
        unknown = (C.UNPROBED, C.UNTRUSTED)
        if event.reason == "connect: auth" and event.condition not in (C.AUTH_FAILED, *unknown):
            self._breach(f"{event.worker} refused our key, but is {event.condition}")
        if event.condition is C.HEALTHY and event.worker not in self.heard.get(who, ()):
            self._breach(f"{event.worker} is healthy in the log of {who}, but has not answered it")
        if event.failed_polls > was.failed_polls and not event.cooldown_until > at:
            self._breach(f"{event.worker} failed {event.failed_polls} polls, but has no back-off")
        if event.condition is C.LOST and was.condition is not C.LOST:
            silent_for = at - was.silent_since if was.silent_since is not None else 0.0
            if event.failed_polls < 3 or silent_for < self.limits.worker_lost_after:
                self._breach(f"{event.worker} is lost after {event.failed_polls} polls in {silent_for:.0f} s")


def _rebooted(life: Life, after: Cluster) -> bool:
    """Whether the worker is up since another boot than when the attempt was assigned: it refuses the launch."""
    worker = after.workers.get(life.worker)
    return worker is None or worker.boot_id != life.boot_id


def _stopping(cluster: Cluster, worker: Worker) -> bool:
    return any(cluster.attempt(each).state is AttemptState.STOPPING for each in worker.claims)


def _was_unkillable(before: Cluster, attempt_id: object) -> bool:
    return any(
        each == attempt_id and before.attempt(each).unkillable
        for worker in before.workers.values()
        for each in worker.claims
    )


def _same_slice(cluster: Cluster, name: WorkerId, worker: Worker) -> bool:
    other = cluster.workers.get(name)
    own = worker.attributes.get(TPU_NAME_ATTRIBUTE_KEY)
    return own is not None and other is not None and other.attributes.get(TPU_NAME_ATTRIBUTE_KEY) == own
