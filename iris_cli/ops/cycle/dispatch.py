"""Send the calls that the log requires: polls, stops, starts. No lock is held during a call."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from math import inf, isinf
from typing import TypeVar

from iris_cli.core import AttemptId, AttemptState, Cluster, Token, Worker, WorkerCondition, WorkerId
from iris_cli.core.events.events import AttemptEnded, AttemptStopped, AttemptStopRequested
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import workers
from iris_cli.core.messages.observations import ProbeReport, RemoteState, Silence, SilenceKind, WorkerReport
from iris_cli.core.model.task import EndReason
from iris_cli.ops.cycle import answers, observe, polls, reply_queue
from iris_cli.ops.cycle.calls import Call, Calls, reap_call
from iris_cli.ops.cycle.launches import Launches
from iris_cli.ops.cycle.requests import Outcomes
from iris_cli.ops.session import Session

R = TypeVar("R")
V = TypeVar("V")

_ALIVE = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.ORPHANED})


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
        self._to_poll: dict[WorkerId, polls.Poll] = {}
        self._to_start: dict[WorkerId, None] = {}
        self._to_reap: dict[WorkerId, None] = {}
        self._launches = Launches(session)
        self._replies = reply_queue.ReplyQueue()
        self._stale: dict[WorkerId, dict[Token, float]] = {}  # see `_stale_attempts`
        self._stopped: set[Token] = set()  # attempts whose stop was sent in this cycle
        self._answers: list[observe.WorkerAnswer] = []  # answers that are not recorded yet
        self._silent: set[WorkerId] = set()  # silent in this cycle, so not called again before the next cycle

    def __enter__(self) -> "Dispatcher":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        calls = self.calls.close()
        if kind is None or issubclass(kind, (KeyboardInterrupt, GeneratorExit)):
            self._launches.release(calls)

    @property
    def unanswered(self) -> set[WorkerId]:
        """Workers with a queued or open poll or probe."""
        return {*self._to_poll, *self.calls.polled_workers}

    def reported_state(self, token: Token) -> RemoteState | None:
        """Return the state that the attempt's worker reported in this cycle, or None."""
        return self._launches.readiness.states.get(token)

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
        self._replies.begin()
        self._stopped.clear()
        self._silent.clear()
        self._to_start |= dict.fromkeys(self._launches.begin(self.cluster))
        self._to_stop |= dict.fromkeys(self.cluster.stopping_jobs())
        due = polls.due(self.session, self.cluster) if poll else []
        self._to_poll = {each.worker: each for each in due if not self.calls.is_busy(each.worker)}
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
            self._launches.add(attempt)
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
            if self._answers or self._launches.not_sent:
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
        self._launches.readiness.recheck_gangs()
        self._send_each(self._to_stop, lambda worker, _: self._stop_call(worker))
        replies, session, cluster = self._replies, self.session, self.cluster
        self._send_each(replies.to_answer, partial(replies.call_to_deliver, session, cluster))
        self._send_each(self._to_start, lambda worker, _: self._launches.next_call(cluster, worker))
        self._send_each(self._to_poll, self._poll_call)
        self._send_each(replies.to_read, partial(replies.call_to_read, session, cluster))
        self._send_each(self._to_reap, lambda worker, _: reap_call(session, cluster, worker))
        if not self.calls.is_full:
            for call in chain(
                self._launches.shipping.calls(cluster), replies.calls_to_fetch(session, cluster)
            ):
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
            worker = self.cluster.workers.get(worker_id)
            if worker is None:
                del queued[worker_id]
            elif self.calls.is_reserved and worker.condition is not WorkerCondition.HEALTHY:
                continue
            elif worker_id in self._silent or workers.is_backing_off(self.cluster, worker, now, limits):
                self._give_up(worker_id, f"the worker is {worker.condition}: {worker.reason}")
                queued.pop(worker_id, None)  # unless `_give_up` removed it
            elif (call := call_for(worker, queued.pop(worker_id))) is not None:
                self.calls.send(call)

    def _stop_call(self, worker: Worker) -> Call | None:
        orders = []
        for attempt_id, attempt in self.cluster.live_attempts_on(worker.id):
            if attempt.state is AttemptState.STOPPING and attempt.token not in self._stopped:
                self._stopped.add(attempt.token)
                job, order = self.cluster.jobs[attempt_id.task.job], attempt.stop
                is_fence = order is not None and order.reason is EndReason.DISPATCH_FAILED
                orders.append((attempt.token, 0.0 if is_fence else job.grace))
        stale = self._stale.pop(worker.id, {})
        if not orders and not stale:
            return None
        act = partial(self.session.runner.stop, self.session.target(worker), [*orders, *stale.items()])
        return Call(context=observe.call_context(self.cluster, worker.id, stale), act=act)

    def _poll_call(self, worker: Worker, poll: polls.Poll) -> Call | None:
        if worker.condition is WorkerCondition.UNTRUSTED and not (poll.probe or poll.stops):
            return None  # an untrusted worker is only probed
        context = observe.call_context(self.cluster, worker.id, dict(poll.stops))
        open_requests = self._replies.open_requests(context.attempts)
        act = polls.poll_call(self.session, self.cluster, self._read_at, poll, context, open_requests)
        return Call(context=context, act=act, poll=poll)

    def _give_up(self, worker: WorkerId, why: str) -> None:
        """Give up the unsent attempts and the log reads of an unreachable worker."""
        self._replies.refuse_readings(self.cluster, worker, why)
        self._launches.give_up(self.cluster, worker, why)

    def _receive(self, call: Call, answer: observe.WorkerAnswer) -> None:
        observation, worker = answer.observation, call.worker
        self._replies.finish_call(self.cluster, call, observation)
        if call.ships:
            self._launches.finish_shipment(call, observation)
        if call.transfer and isinstance(observation, Silence) and observation.kind is SilenceKind.LOCAL:
            return  # the transfer failed on this machine, so nothing is recorded about the worker
        if isinstance(observation, WorkerReport):
            self.with_output.update(report.token for report in observation.attempts if report.output_bytes)
        self.requests += len(answer.requests)
        self._answers.append(self._replies.mark_deferred(answer))
        self._to_stop[worker] = self._to_start[worker] = None  # the worker may have more to stop or start
        if call.poll is not None:
            self.observations.append(observation)
        if (next_poll := polls.next_poll(call.poll, answer)) is not None:
            self._to_poll[worker] = next_poll
        if isinstance(observation, Silence):
            self._silent.add(worker)
            if worker in self.cluster.workers:
                self._give_up(worker, observation.problem)
        self._launches.finish_call(self.cluster, call, observation)

    def _record_answers(self) -> None:
        """Record the received answers on the newest state, which may have changed since the calls were sent."""
        readiness = self._launches.readiness

        def rule(draft: Draft) -> tuple[observe.States, Outcomes]:
            given_up = self._launches.record(draft)
            states, outcomes = observe.record_answers(self.session, draft, self._answers, self.unanswered)
            for observation in (answer.observation for answer in self._answers):
                if isinstance(observation, WorkerReport):
                    fenced = readiness.fence_late(draft, observation, states, self.session.limits)
                    given_up.update(dict.fromkeys(fenced))
            observe.settle(self.session, draft, given_up, self.unanswered)
            return states, outcomes

        states, outcomes = self.decide(rule)
        self._launches.end_record(states)
        self._replies.queue_outcomes(self.cluster, outcomes.values())
        self._to_poll = {**self._replies.polls_due(self._answers), **self._to_poll}
        for worker, token, grace in _stale_attempts(self.cluster, self._answers):
            self._stale.setdefault(worker, {})[token] = grace
        jobs = dict.fromkeys(key.task.job for each in self._answers for key in each.context.attempts.values())
        self._answers.clear()
        self._to_start |= dict.fromkeys(readiness.workers_to_start(self.cluster, jobs))


def _stale_attempts(
    cluster: Cluster, received: Iterable[observe.WorkerAnswer]
) -> Iterator[tuple[WorkerId, Token, float]]:
    """Yield the attempts that ended in the log but are alive on a worker: worker, token, grace period in seconds."""
    for answer in received:
        reports = answer.observation.attempts if isinstance(answer.observation, WorkerReport) else ()
        for report in reports:
            attempt_id = answer.context.attempts.get(report.token)
            if attempt_id is None or report.state not in _ALIVE:
                continue
            attempt = cluster.find_attempt(attempt_id, report.token)
            if attempt is not None and not attempt.live:
                yield answer.context.worker, report.token, cluster.jobs[attempt_id.task.job].grace
