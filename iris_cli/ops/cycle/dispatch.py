"""Send the calls that the log requires: polls, stops, starts. No lock is held during a call.

Launching is idempotent for each token. If an invocation dies, another invocation can dispatch the same attempts again.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from math import inf, isinf
from typing import TypeVar

from iris_cli.core import Attempt, AttemptId, AttemptState, JobId, Token, Worker, WorkerCondition, WorkerId
from iris_cli.core.events.events import AttemptEnded, AttemptStopped, AttemptStopRequested
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.messages.observations import ProbeReport, RemoteState, Silence, SilenceKind, WorkerReport
from iris_cli.errors import IrisError
from iris_cli.ops.cycle import answers, observe, reply_queue, transfers
from iris_cli.ops.cycle.calls import Call, Calls, launch_request, reap_call
from iris_cli.ops.cycle.orders import Readiness, stale_attempts, stop_order
from iris_cli.ops.cycle.requests import Outcomes
from iris_cli.ops.secret_values import MissingSecretError
from iris_cli.ops.session import Session

R = TypeVar("R")
V = TypeVar("V")
Item = tuple[AttemptId, Attempt]

_UNPREPARED = frozenset({RemoteState.ABSENT, RemoteState.PREPARING})
"""States of an attempt that must be prepared, because it has no files yet or its preparation may be incomplete."""


class Dispatcher:
    """Event loop of one invocation: record the received answers in one transaction, then send the calls that follow.

    The call to a hanging worker stays open and delays no other worker. A background loop keeps one dispatcher, so that
    a slow call can finish in a later cycle. Each start or stop of an attempt is sent once per cycle.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cluster = session.cluster  # state after the last decision
        self._read_at = session.read_at
        self.observations: list[answers.Observation] = []  # answers to this cycle's polls and probes
        self.ended: dict[Token, AttemptId] = {}  # ended attempts that `copy_ended_logs` has not handled yet
        self.with_output: set[Token] = set()  # attempts that have output
        self.requests = 0  # number of task requests received so far
        self._old = 0  # number of `observations` to drop when the next cycle begins
        self.calls = Calls(session)
        self._to_stop: dict[WorkerId, None] = {}
        self._to_poll: dict[WorkerId, observe.Poll] = {}
        self._to_start: dict[WorkerId, None] = {}
        self._to_reap: dict[WorkerId, None] = {}
        self._readiness = Readiness()
        self._replies = reply_queue.ReplyQueue()
        self._shipping = transfers.Shipping(session)
        self._was_shipped = False  # True if a workspace was sent since the last decision
        self._unsent: set[Token] = set()  # attempts assigned by this invocation and not sent yet
        self._stale: dict[WorkerId, dict[Token, float]] = {}  # see `stale_attempts`
        self._sent: set[tuple[Token, AttemptState]] = set()  # starts and stops sent in this cycle
        self._answers: list[observe.WorkerAnswer] = []  # answers that are not recorded yet
        self._silent: set[WorkerId] = set()  # silent in this cycle, so not called again before the next cycle
        # Attempts that could not be sent, each with the reason. The log does not record them yet.
        self._not_sent: dict[Token, tuple[AttemptId, str]] = {}

    def __enter__(self) -> "Dispatcher":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        calls = self.calls.close()
        if kind is None or issubclass(kind, (KeyboardInterrupt, GeneratorExit)):
            self._release({attempt_id for call in calls for attempt_id in call.launching})

    def _release(self, launching: set[AttemptId]) -> None:
        """Let other invocations dispatch `launching` and the unsent attempts before the dispatch lease expires."""

        def rule(draft: Draft) -> None:
            live = draft.cluster.live_attempts()
            unstarted = [each for each, attempt in live if each in launching or attempt.token in self._unsent]
            attempts.release_dispatch(draft, unstarted)

        if launching or self._unsent:
            with suppress(IrisError):
                self.session.decide(rule)

    @property
    def unanswered(self) -> set[WorkerId]:
        """Workers with a queued or open poll or probe."""
        return {*self._to_poll, *self.calls.polled_workers}

    def reported_state(self, token: Token) -> RemoteState | None:
        """Return the state that the attempt's worker reported in this cycle, or None."""
        return self._readiness.states.get(token)

    @property
    def workers_with_calls(self) -> set[WorkerId]:
        """Workers with an open or queued call, including transfers."""
        called = (call.worker for call in self.calls.open_calls())
        return {*called, *self._to_stop, *self._to_poll, *self._to_start}

    def decide(self, rule: Callable[[Draft], R]) -> R:
        """Run `Session.decide`, queue the stops that `rule` requests, and note the attempts that `rule` ends."""
        decided, events = self.session.decide(lambda draft: (rule(draft), draft.events))
        self._update_cluster()
        for event in events:
            if isinstance(event, AttemptStopRequested):
                self._to_stop[self.cluster.attempt(event.attempt_id).worker] = None
            elif isinstance(event, AttemptEnded | AttemptStopped):
                self.ended[self.cluster.attempt(event.attempt_id).token] = event.attempt_id
        return decided

    def _update_cluster(self) -> None:
        self.cluster, self._read_at = self.session.cluster, self.session.read_at
        self._replies.queue_ended_waits(self.cluster)

    def begin(self, *, poll: bool = True) -> int:
        """Begin a new cycle, in which each start and stop may be sent again. Return the number of workers to poll."""
        self._update_cluster()
        del self.observations[: self._old]
        self._old = 0
        self._readiness.begin(self.cluster)
        self._replies.begin()
        self._shipping.begin()
        self._sent.clear()
        self._silent.clear()
        unsent, self._unsent = self._unsent, set()
        for attempt_id, attempt in self.cluster.live_attempts():
            if attempt.state is AttemptState.STOPPING:
                self._to_stop[attempt.worker] = None
            elif attempt.token in unsent and not attempt.taken_over:
                self.start([attempt_id])
        polls = observe.polls_due(self.session, self.cluster, self.session.clock.now()) if poll else []
        self._to_poll = {each.worker: each for each in polls if not self.calls.is_busy(each.worker)}
        return len(self._to_poll)

    def end_cycle(self) -> None:
        """End the cycle: later answers belong to the next cycle. Queue the deletion of old files.

        Only on workers that reported their clock, because this machine's clock may have been set ahead since.
        """
        self._old = len(self.observations)
        reports = (each for each in self.observations if isinstance(each, WorkerReport | ProbeReport))
        self._to_reap = {each.worker: None for each in reports if each.clock}

    def start(self, assigned: Iterable[AttemptId]) -> None:
        """Queue the calls that start these attempts, which this invocation has just assigned."""
        for attempt_id in assigned:
            attempt = self.cluster.attempt(attempt_id)
            self._unsent.add(attempt.token)
            self._to_start[attempt.worker] = None

    def process_calls(
        self, *, patience: float = inf, until: float = inf, is_done: Callable[[], bool] = lambda: False
    ) -> bool:
        """Send queued calls and record their answers. Return True once no call is open.

        Return False if `is_done` returns True, after `patience` seconds without an answer, or at the monotonic time
        `until`. Calling this method again continues. Raises the errors of `Session.transaction`. After an error, the
        answers are recorded when this method is called again.
        """
        while True:
            self.send()
            if self._answers or self._not_sent:
                self._record_answers()
                continue
            if not self.calls:
                return True
            is_enough = is_done()  # then only the answers that have arrived are recorded
            wait = 0.0 if is_enough else min(patience, until - self.session.clock.monotonic())
            if wait <= 0 and not is_enough:
                return False
            returned = self.calls.take(None if isinf(wait) else wait)
            for call, answer in returned:
                self._receive(call, answer)
            if not returned:
                return False

    def send(self) -> None:
        """Send calls while threads are free: first stops, then answers to tasks, starts, polls and other calls.

        Starts precede polls, because the polls of many hanging workers could use all threads for minutes.
        """
        self._readiness.recheck_gangs()
        self._send_each(self._to_stop, lambda worker, _: self._stop_call(worker))
        replies, session, cluster = self._replies, self.session, self.cluster
        self._send_each(replies.to_answer, partial(replies.call_to_deliver, session, cluster))
        self._send_each(self._to_start, lambda worker, _: self._start_call(worker))
        self._send_each(self._to_poll, self._poll_call)
        self._send_each(replies.to_read, partial(replies.call_to_read, session, cluster))
        self._send_each(self._to_reap, lambda worker, _: reap_call(session, cluster, worker))
        if not self.calls.is_full:
            for call in chain(self._shipping.calls(cluster), replies.calls_to_fetch(session, cluster)):
                self.calls.send(call)

    def _send_each(self, queued: dict[WorkerId, V], call_for: Callable[[Worker, V], Call | None]) -> None:
        """Send a call to each queued worker that has no open call. The other workers stay queued."""
        now, limits = self.session.clock.now(), self.session.limits
        unrecorded = {answer.context.worker for answer in self._answers}
        for worker_id in list(queued):
            if self.calls.is_full:
                return
            if self.calls.is_busy(worker_id) or worker_id in unrecorded:
                continue  # the worker's last answer must arrive and be recorded first
            item, worker = queued[worker_id], self.cluster.workers.get(worker_id)
            if (
                worker is not None
                and self.calls.is_reserved
                and worker.condition is not WorkerCondition.HEALTHY
            ):
                continue
            is_silent = worker_id in self._silent
            if worker is not None and (
                is_silent or workers.is_backing_off(self.cluster, worker, now, limits)
            ):
                self._give_up(worker_id, f"the worker is {worker.condition}: {worker.reason}")
                worker = None
            queued.pop(worker_id, None)
            if worker is not None and (call := call_for(worker, item)) is not None:
                self.calls.send(call)

    def _stop_call(self, worker: Worker) -> Call | None:
        orders = []
        for attempt_id, attempt in self.cluster.live_attempts_on(worker.id):
            if attempt.state is AttemptState.STOPPING and self._mark_sent(attempt):
                orders.append(stop_order(self.cluster, attempt_id, attempt))
        stale = self._stale.pop(worker.id, {})
        if not orders and not stale:
            return None
        act = partial(self.session.runner.stop, self.session.target(worker), [*orders, *stale.items()])
        return Call(context=observe.call_context(self.cluster, worker.id, stale), act=act)

    def _poll_call(self, worker: Worker, poll: observe.Poll) -> Call | None:
        if worker.condition is WorkerCondition.UNTRUSTED and not (poll.probe or poll.stops):
            return None  # an untrusted worker is only probed
        context = observe.call_context(self.cluster, worker.id, dict(poll.stops))
        open_requests = self._replies.open_requests(context.attempts)
        act = observe.poll_call(self.session, self.cluster, self._read_at, poll, context, open_requests)
        return Call(context=context, act=act, poll=poll)

    def _start_call(self, worker: Worker) -> Call | None:
        """Return the next call that prepares or starts attempts on the worker, or None."""
        direct: list[Item] = []
        staged: list[Item] = []
        ready: list[Token] = []
        for attempt_id, attempt in self.cluster.live_attempts_on(worker.id):
            if attempt.state is not AttemptState.ASSIGNED:
                continue
            job = self.cluster.jobs[attempt_id.task.job]
            if self._shipping.must_wait(worker.id, job):
                continue
            if self._readiness.is_prepared(attempt):
                if job.client:
                    continue  # an interactive task starts only on the terminal of its client
                if not job.is_gang or self._readiness.is_ready(self.cluster, job.id):
                    ready.append(attempt.token)
            elif self._must_prepare(attempt):
                needs_two_calls = job.is_gang or job.has_set_up or job.client
                (staged if needs_two_calls else direct).append((attempt_id, attempt))
        for items, go in ((direct, True), (staged, False)):
            if (call := self._prepare_call(worker, items, go=go)) is not None:
                return call
        if not ready:
            return None
        self._readiness.record_go(ready)
        runner, target = self.session.runner, self.session.target(worker)
        act = partial(runner.go, target, ready, boot_id=worker.boot_id, incarnation=worker.incarnation)
        return Call(context=observe.call_context(self.cluster, worker.id), act=act, goes=tuple(ready))

    def _must_prepare(self, attempt: Attempt) -> bool:
        """Return True if this invocation has not sent the attempt yet, or must send the attempt again in this cycle."""
        if attempt.token in self._unsent:
            return True
        was_sent = attempt.taken_over or attempt.acknowledged
        is_unprepared = self._readiness.states.get(attempt.token) in _UNPREPARED
        return was_sent and is_unprepared and (attempt.token, attempt.state) not in self._sent

    def _prepare_call(self, worker: Worker, items: list[Item], *, go: bool) -> Call | None:
        """Return a call that prepares the attempts that this invocation may send now, or None."""
        requests = {}
        for attempt_id, attempt in items:
            self._mark_sent(attempt)
            self._unsent.discard(attempt.token)
            if self._has_expired(attempt):
                continue  # this process was suspended, and another invocation may have taken over the attempt
            try:
                requests[attempt_id] = launch_request(self.session, self.cluster, attempt_id)
            except MissingSecretError:
                continue  # an invocation that has the secret will start it
            except ValueError as error:
                self._not_sent[attempt.token] = (attempt_id, f"can't send it: {error}")
        if not requests:
            return None
        prepare, target = partial(self.session.runner.prepare, go=go), self.session.target(worker)
        all_requests, boot_id, incarnation = list(requests.values()), worker.boot_id, worker.incarnation
        act = partial(prepare, target, all_requests, boot_id=boot_id, incarnation=incarnation)
        return Call(context=observe.call_context(self.cluster, worker.id), act=act, starts=tuple(requests))

    def _mark_sent(self, attempt: Attempt) -> bool:
        """Note that the attempt is sent in its present state. Return False if it was already sent in this cycle."""
        is_new = (attempt.token, attempt.state) not in self._sent
        self._sent.add((attempt.token, attempt.state))
        return is_new

    def _has_expired(self, attempt: Attempt) -> bool:
        """Return True if the attempt's dispatch lease has expired, so that another invocation may dispatch it."""
        lease = self.session.limits.dispatch_lease
        is_late = not 0 <= self.session.clock.now() - attempt.assigned_at < lease
        return is_late and not attempt.taken_over and not attempt.acknowledged

    def _give_up(self, worker: WorkerId, why: str) -> None:
        """Mark the unsent attempts of an unreachable worker as failed to send, and refuse its log reads."""
        self._replies.refuse_readings(self.cluster, worker, why)
        for attempt_id, attempt in self.cluster.live_attempts_on(worker):
            if attempt.token in self._unsent:
                self._unsent.discard(attempt.token)
                self._not_sent[attempt.token] = (attempt_id, why)

    def _receive(self, call: Call, answer: observe.WorkerAnswer) -> None:
        observation, worker = answer.observation, call.worker
        self._replies.finish_call(self.cluster, call, observation)
        if call.ships:
            self._finish_shipment(call, observation)
        if call.transfer and isinstance(observation, Silence) and observation.kind is SilenceKind.LOCAL:
            return  # the transfer failed on this machine, so nothing is recorded about the worker
        if isinstance(observation, WorkerReport):
            self.with_output.update(report.token for report in observation.attempts if report.output_bytes)
        self.requests += len(answer.requests)
        self._answers.append(self._replies.mark_deferred(answer))
        self._to_stop[worker] = self._to_start[worker] = None  # the worker may have more to stop or start
        if call.poll is not None:
            self.observations.append(observation)
        if (next_poll := observe.next_poll(call.poll, answer)) is not None:
            self._to_poll[worker] = next_poll
        if not isinstance(observation, Silence):
            self._readiness.answered.update(call.goes)
            if isinstance(observation, WorkerReport) and observation.lacking and call.starts:
                self._requeue(call, observation)
        else:
            self._silent.add(worker)
            why = f"{observation.step}: {observation.detail}"
            if worker in self.cluster.workers:
                self._give_up(worker, why)
            for token, attempt_id in answer.context.attempts.items():
                if attempt_id in call.starts and not observation.sent:
                    self._not_sent[token] = (attempt_id, why)

    def _requeue(self, call: Call, observation: WorkerReport) -> None:
        """Queue again the attempts that the worker did not prepare because it lacks their workspace."""
        for token, attempt_id in self._shipping.record_missing(self.cluster, call, observation).items():
            attempt = self.cluster.find_attempt(attempt_id, token)
            if attempt is not None and not (attempt.taken_over or self._has_expired(attempt)):
                self._unsent.add(token)

    def _finish_shipment(self, call: Call, observation: answers.Observation) -> None:
        """Allow `prepare` for the attempts that waited for the workspace. After a failed transfer, note the reason."""
        self._was_shipped = True
        for token, attempt_id in self._shipping.end_shipment(call, observation).items():
            self._sent.discard((token, AttemptState.ASSIGNED))
            if isinstance(observation, Silence) and token in self._unsent:
                self._unsent.discard(token)
                self._not_sent[token] = (attempt_id, f"{observation.step}: {observation.detail}")

    def _record_answers(self) -> None:
        """Record the received answers on the newest state, which may have changed since the calls were sent."""

        def rule(draft: Draft) -> tuple[observe.States, Outcomes]:
            given_up = self._record_not_sent(draft)
            if self._was_shipped:  # the transfer may have taken longer than the dispatch lease
                attempts.take_over(draft, self.session.limits)
            states, outcomes = observe.record_answers(self.session, draft, self._answers, self.unanswered)
            for observation in (answer.observation for answer in self._answers):
                if isinstance(observation, WorkerReport):
                    fenced = self._readiness.fence_late(draft, observation, states, self.session.limits)
                    given_up.update(dict.fromkeys(fenced))
            observe.settle(self.session, draft, given_up, self.unanswered)
            return states, outcomes

        states, outcomes = self.decide(rule)
        self._readiness.states |= states
        self._replies.queue_outcomes(self.cluster, outcomes.values())
        self._to_poll = {**self._replies.polls_due(self._answers), **self._to_poll}
        for worker, token, grace in stale_attempts(self.cluster, self._answers):
            self._stale.setdefault(worker, {})[token] = grace
        jobs = dict.fromkeys(key.task.job for each in self._answers for key in each.context.attempts.values())
        self._answers.clear()
        self._not_sent.clear()
        self._was_shipped = False
        gangs = [job for job in jobs if job in self.cluster.jobs and self.cluster.jobs[job].is_gang]
        self._to_start.update(dict.fromkeys(self._readiness.workers_to_start(self.cluster, gangs)))

    def _record_not_sent(self, draft: Draft) -> dict[JobId, None]:
        """Record the attempts that were not sent and whose dispatch lease has not expired. Return their jobs."""
        jobs: dict[JobId, None] = {}
        for token, (attempt_id, why) in self._not_sent.items():
            attempt = draft.cluster.find_attempt(attempt_id, token)
            if attempt is not None and not self._has_expired(attempt):
                attempts.record_not_sent(draft, attempt_id, why)
                jobs[attempt_id.task.job] = None
        return jobs
