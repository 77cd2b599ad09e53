"""Carry out the requests in the log: poll, stop, start. No lock is held during a call.

Launching is idempotent per token: any invocation can dispatch an attempt whose dispatcher died.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TypeVar

from iris_cli.core import Attempt, AttemptId, AttemptState, JobId, Token, Worker, WorkerCondition, WorkerId
from iris_cli.core.events.events import AttemptEnded, AttemptStopped, AttemptStopRequested
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind, WorkerReport
from iris_cli.errors import IrisError
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.answers import Seen
from iris_cli.ops.cycle.calls import Call, Calls, Enough, go_call, launch_request, never, prepare_call
from iris_cli.ops.cycle.mail import Mail
from iris_cli.ops.cycle.observe import Answer, Question
from iris_cli.ops.cycle.orders import Readiness, Strays, attempt_of, stop_order
from iris_cli.ops.cycle.reap import reap_call
from iris_cli.ops.cycle.requests import Outcomes
from iris_cli.ops.cycle.transfers import Shipping
from iris_cli.ops.secret_values import MissingSecretError
from iris_cli.ops.session import Session

_EVER = math.inf
R = TypeVar("R")
V = TypeVar("V")
Item = tuple[AttemptId, Attempt]

_LACKING = frozenset({RemoteState.ABSENT, RemoteState.PREPARING})
"""States in which an attempt still has to be prepared: no files yet, or its preparation may have been cut off."""


class Dispatcher:
    """Event loop of one invocation: weighs arriving answers in one transaction, then sends the calls that follow.

    A hanging worker keeps its call and delays no other worker. A loop keeps one dispatcher, so a slow call can finish
    in a later cycle. Each order is sent once per cycle.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cluster = session.cluster  # as of the last decision
        self._read_at = session.read_at
        self.seen: list[Seen] = []  # answers to this cycle's questions
        self.ended: dict[Token, AttemptId] = {}  # attempts whose end was seen; cleared by the caller
        self.wrote: set[Token] = set()  # attempts that have output
        self.requests = 0  # number of task requests received so far
        self._old = 0  # entries of `seen` to drop when the next cycle begins
        self.calls = Calls(session)
        self._to_stop: dict[WorkerId, None] = {}
        self._to_ask: dict[WorkerId, Question] = {}
        self._to_start: dict[WorkerId, None] = {}
        self._to_reap: dict[WorkerId, None] = {}
        self._readiness = Readiness()
        self._mail = Mail()
        self._shipping = Shipping(session)
        self._has_shipped = False  # since the last decision
        self._mine: set[Token] = set()  # assigned by this invocation, not sent yet
        self._strays = Strays()
        self._begun: set[tuple[Token, AttemptState]] = set()
        self._answers: list[Answer] = []  # not weighed yet
        self._silent: set[WorkerId] = set()  # in this cycle; polled again in the next one
        self._not_sent: dict[Token, tuple[AttemptId, str]] = {}  # certainly not sent, not committed yet

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calls = self.calls.close()
        if kind is None or issubclass(kind, (KeyboardInterrupt, GeneratorExit)):
            self._leave({attempt_id for call in calls for attempt_id in call.launching})

    def _leave(self, launching: set[AttemptId]) -> None:
        """Give up attempts that are unsent or unanswered. If the write fails, the dispatch lease ends them later."""

        def rule(draft: Draft) -> None:
            live = draft.cluster.live_attempts()
            left = [each for each, attempt in live if each in launching or attempt.token in self._mine]
            attempts.release_dispatch(draft, left)

        if launching or self._mine:
            with suppress(IrisError):
                self.session.decide(rule)

    @property
    def unheard(self) -> set[WorkerId]:
        """Workers with a question queued or under way."""
        return {*self._to_ask, *self.calls.asked}

    def said(self, token: Token) -> RemoteState | None:
        """Return the state of the attempt as its worker reported it in this cycle, or None."""
        return self._readiness.said.get(token)

    @property
    def engaged(self) -> set[WorkerId]:
        """Workers with a call under way or queued, including transfers."""
        under_way = {call.worker for call in self.calls.under_way()}
        return under_way.union(self._to_stop, self._to_ask, self._to_start)

    def decide(self, rule: Callable[[Draft], R]) -> R:
        """Run `Session.decide`, and queue the stops that the rule requests."""

        decided, events = self.session.decide(lambda draft: (rule(draft), draft.events))
        self._take_cluster()
        for event in events:
            if isinstance(event, AttemptStopRequested):
                self._to_stop[self.cluster.attempt(event.attempt_id).worker] = None
            elif isinstance(event, AttemptEnded | AttemptStopped):
                self.ended[self.cluster.attempt(event.attempt_id).token] = event.attempt_id
        return decided

    def _take_cluster(self) -> None:
        self.cluster, self._read_at = self.session.cluster, self.session.read_at
        self._mail.look(self.cluster)

    def begin(self, *, ask: bool = True) -> int:
        """Begin a new cycle: orders may be sent once more. Return the number of workers to poll."""
        self._take_cluster()
        del self.seen[: self._old]
        self._old = 0
        self._readiness.begin(self.cluster)
        self._mail.begin()
        self._shipping.begin()
        self._begun.clear()
        self._silent.clear()
        mine, self._mine = self._mine, set()
        for attempt_id, attempt in self.cluster.live_attempts():
            if attempt.state is AttemptState.STOPPING:
                self._to_stop[attempt.worker] = None
            elif attempt.token in mine and not attempt.taken_over:
                self.start([attempt_id])
        asked = observe.questions(self.session, self.cluster, self.session.clock.now()) if ask else []
        self._to_ask = {each.worker: each for each in asked if not self.calls.busy(each.worker)}
        return len(self._to_ask)

    def concluded(self) -> None:
        """End the cycle: later answers belong to the next one. Workers that answered may remove files now."""
        self._old = len(self.seen)
        self._to_reap = {seen.worker: None for seen in self.seen if not isinstance(seen, Silence)}

    def start(self, mine: Iterable[AttemptId]) -> None:
        """Queue the start of attempts that this invocation has just assigned."""
        for attempt_id in mine:
            attempt = self.cluster.attempt(attempt_id)
            self._mine.add(attempt.token)
            self._to_start[attempt.worker] = None

    def attend(self, *, patience: float = _EVER, until: float = _EVER, enough: Enough = never) -> bool:
        """Send queued calls and weigh their answers in turn. Return True once no call is under way.

        Return False if `enough()`, after `patience` seconds without an answer, or at the monotonic time
        `until`; a later call continues. Raises the errors of `Session.transaction`; no answer is lost then.
        """
        while True:
            self.send()
            if self._answers or self._not_sent:
                self._weigh()
                continue
            if not self.calls:
                return True
            is_enough = enough()
            wait = 0.0 if is_enough else min(patience, until - self.session.clock.monotonic())
            if (wait <= 0 and not is_enough) or not self._listen(wait):
                return False

    def send(self) -> None:
        """Send calls while there is room: stops, answers, questions, starts, log reads, removals, transfers."""
        self._readiness.look_again()
        self._begin(self._to_stop, lambda worker, _: self._stop(worker))
        self._begin(self._mail.to_answer, partial(self._mail.answer_call, self.session, self.cluster))
        self._begin(self._to_ask, self._ask)
        self._begin(self._to_start, lambda worker, _: self._start(worker))
        self._begin(self._mail.to_read, partial(self._mail.read_call, self.session, self.cluster))
        self._begin(self._to_reap, lambda worker, _: reap_call(self.session, self.cluster, worker))
        if not self.calls.full:
            aside = (self._shipping.calls(self.cluster), self._mail.fetch_calls(self.session, self.cluster))
            for call in chain(*aside):
                self.calls.send(call)

    def _begin(self, waiting: dict[WorkerId, V], call_of: Callable[[Worker, V], Call | None]) -> None:
        now = self.session.clock.now()
        unweighed = {answer.known.worker for answer in self._answers}
        for worker_id in list(waiting):
            if self.calls.full:
                return
            if self.calls.busy(worker_id) or worker_id in unweighed:
                continue  # wait until that answer is weighed
            task = waiting[worker_id]
            worker = self.cluster.workers.get(worker_id)
            if worker is not None and self._is_left_alone(worker, now):
                self._give_up(worker_id, f"the worker is {worker.condition}: {worker.reason}")
                worker = None
            waiting.pop(worker_id, None)
            if worker is None:
                continue
            call = call_of(worker, task)
            if call is not None:
                self.calls.send(call)

    def _is_left_alone(self, worker: Worker, now: float) -> bool:
        return worker.id in self._silent or workers.is_backing_off(
            self.cluster, worker, now, self.session.limits
        )

    def _stop(self, worker: Worker) -> Call | None:
        orders = []
        for attempt_id, attempt in self.cluster.live_on(worker.id):
            if attempt.state is AttemptState.STOPPING and self._first_time(attempt):
                orders.append(stop_order(self.cluster, attempt_id, attempt))
        strays = self._strays.take(worker.id)
        if not orders and not strays:
            return None
        act = partial(self.session.runner.stop, self.session.target(worker), [*orders, *strays.items()])
        return Call(known=observe.known_of(self.cluster, worker.id, also=strays), act=act)

    def _ask(self, worker: Worker, question: Question) -> Call | None:
        if worker.condition is WorkerCondition.UNTRUSTED and not (question.probe or question.stops):
            return None  # reports of an untrusted worker are not used
        known = observe.known_of(self.cluster, worker.id, also=dict(question.stops))
        held = self._mail.held(known.attempts)
        act = observe.asking(self.session, self.cluster, self._read_at, question, known, held)
        return Call(known=known, act=act, question=question)

    def _start(self, worker: Worker) -> Call | None:
        """Return the next call that starts attempts on the worker: single tasks at once, others are prepared first."""
        direct: list[Item] = []
        staged: list[Item] = []
        ready: list[Token] = []
        for attempt_id, attempt in self.cluster.live_on(worker.id):
            if attempt.state is not AttemptState.ASSIGNED:
                continue
            job = self.cluster.jobs[attempt_id.task.job]
            if self._shipping.holds_up(worker.id, job):
                continue
            if self._readiness.is_prepared(attempt):
                if job.client:
                    continue  # starts only on the terminal of its client
                if not job.is_gang or self._readiness.is_ready(self.cluster, job.id):
                    ready.append(attempt.token)
            elif self._is_to_prepare(attempt):
                in_two = job.is_gang or job.setup or job.workspace or job.client
                (staged if in_two else direct).append((attempt_id, attempt))
        for items, go in ((direct, True), (staged, False)):
            call = self._prepare(worker, items, go=go)
            if call is not None:
                return call
        self._readiness.told_to_start(ready)
        return go_call(self.session, self.cluster, worker, ready) if ready else None

    def _is_to_prepare(self, attempt: Attempt) -> bool:
        """Return True if it is unsent by this invocation, or adopted, lacking on its worker and unsent this cycle."""
        if attempt.token in self._mine:
            return True
        adopted = attempt.taken_over or attempt.acknowledged
        lacking = self._readiness.said.get(attempt.token) in _LACKING
        return adopted and lacking and (attempt.token, attempt.state) not in self._begun

    def _prepare(self, worker: Worker, items: list[Item], *, go: bool) -> Call | None:
        """Return a call that prepares those attempts that this invocation may send now, or None."""
        requests = {}
        for attempt_id, attempt in items:
            self._first_time(attempt)
            self._mine.discard(attempt.token)
            if self._has_expired(attempt):
                continue  # the process slept: another invocation may have taken it over
            try:
                requests[attempt_id] = launch_request(self.session, self.cluster, attempt_id)
            except MissingSecretError:
                continue  # an invocation that has the secret will start it
            except ValueError as error:
                self._not_sent[attempt.token] = (attempt_id, f"can't send it: {error}")
        if not requests:
            return None
        return prepare_call(self.session, self.cluster, worker, requests, go=go)

    def _first_time(self, attempt: Attempt) -> bool:
        """Return True if the attempt was not sent in this state in this cycle, and record that it is sent."""
        new = (attempt.token, attempt.state) not in self._begun
        self._begun.add((attempt.token, attempt.state))
        return new

    def _has_expired(self, attempt: Attempt) -> bool:
        lease = self.session.limits.dispatch_lease
        late = not 0 <= self.session.clock.now() - attempt.assigned_at < lease
        return late and not attempt.taken_over and not attempt.acknowledged

    def _give_up(self, worker: WorkerId, why: str) -> None:
        """Record that unsent attempts of a worker in back-off were not sent, and refuse its log reads."""
        self._mail.refuse_readings(self.cluster, worker, why)
        for attempt_id, attempt in self.cluster.live_on(worker):
            if attempt.token in self._mine:
                self._mine.discard(attempt.token)
                self._not_sent[attempt.token] = (attempt_id, why)

    def _listen(self, patience: float) -> bool:
        """Receive answers, waiting at most `patience` seconds. Return False if none arrived."""
        returned = self.calls.take(None if math.isinf(patience) else patience)
        for call, answer in returned:
            self._heard(call, answer)
        return bool(returned)

    def _heard(self, call: Call, answer: Answer) -> None:
        seen, worker = answer.seen, call.worker
        self._mail.was_read(self.cluster, call, seen)
        if call.ships:
            self._shipped(call, seen)
        if call.aside and isinstance(seen, Silence) and seen.kind is SilenceKind.LOCAL:
            return  # a local fault says nothing about the worker
        if isinstance(seen, WorkerReport):
            self.wrote.update(report.token for report in seen.attempts if report.output_bytes)
        self.requests += len(answer.asked)
        self._answers.append(self._mail.taken(answer))
        self._to_stop[worker] = self._to_start[worker] = None
        if call.question is not None:
            self.seen.append(seen)
        rest = observe.rest_of(call.question, answer)
        if rest is not None:
            self._to_ask[worker] = rest
        if not isinstance(seen, Silence):
            self._readiness.was_told(call.goes)
            if isinstance(seen, WorkerReport) and seen.lacking and call.starts:
                self._lacking(call, seen)
        else:
            self._silent.add(worker)
            why = f"{seen.step}: {seen.detail}"
            if worker in self.cluster.workers:
                self._give_up(worker, why)
            for token, attempt_id in answer.known.attempts.items():
                if attempt_id in call.starts and not seen.sent:
                    self._not_sent[token] = (attempt_id, why)

    def _lacking(self, call: Call, seen: WorkerReport) -> None:
        """Queue attempts that lack a workspace again: the worker has done nothing for them."""
        for token, attempt_id in self._shipping.lacking(self.cluster, call, seen).items():
            attempt = attempt_of(self.cluster, attempt_id)
            if attempt is not None and not (attempt.taken_over or self._has_expired(attempt)):
                self._mine.add(token)

    def _shipped(self, call: Call, seen: Seen) -> None:
        """Allow waiting attempts to be prepared, or record them as not sent if the workspace could not be sent."""
        self._has_shipped = True
        for token, attempt_id in self._shipping.answered(call, seen).items():
            self._begun.discard((token, AttemptState.ASSIGNED))
            if isinstance(seen, Silence) and token in self._mine:
                self._mine.discard(token)
                self._not_sent[token] = (attempt_id, f"{seen.step}: {seen.detail}")

    def _weigh(self) -> None:
        """Record the answers received. The state may have changed since the calls, so everything is decided again."""

        def rule(draft: Draft) -> tuple[observe.States, Outcomes]:
            given_up = self._record_not_sent(draft)
            if self._has_shipped:  # may have taken longer than the dispatch lease
                attempts.take_over(draft, self.session.limits)
            states, outcomes = observe.weigh(self.session, draft, self._answers, self.unheard)
            for seen in (answer.seen for answer in self._answers):
                if isinstance(seen, WorkerReport):
                    held_up = self._readiness.give_up(draft, seen, states, self.session.limits)
                    given_up.update(dict.fromkeys(held_up))
            observe.settle(self.session, draft, given_up, self.unheard)
            return states, outcomes

        said, outcomes = self.decide(rule)
        self._readiness.said |= said
        self._mail.take_in(self.cluster, outcomes.values())
        self._to_ask = {**self._mail.questions(self._answers), **self._to_ask}
        self._strays.find(self.cluster, self._answers)
        told = dict.fromkeys(mine.task.job for each in self._answers for mine in each.known.attempts.values())
        self._answers.clear()
        self._not_sent.clear()
        self._has_shipped = False
        known = self.cluster.jobs
        gangs = [job for job in told if job in known and known[job].is_gang]
        self._to_start.update(dict.fromkeys(self._readiness.where_ready(self.cluster, gangs)))

    def _record_not_sent(self, draft: Draft) -> dict[JobId, None]:
        """Record that attempts never started, if their dispatch lease still holds. Return their jobs."""
        recorded: dict[JobId, None] = {}
        for token, (attempt_id, why) in self._not_sent.items():
            attempt = attempt_of(draft.cluster, attempt_id)
            if attempt is None or attempt.token != token or self._has_expired(attempt):
                continue
            attempts.record_not_sent(draft, attempt_id, why)
            recorded[attempt_id.task.job] = None
        return recorded
