"""Carry out what the log says: start what was assigned, stop what is to be stopped. No lock is held here.

Launching is idempotent per token, so everything here may be done again by anybody: an attempt whose
dispatcher died is simply dispatched once more, and so is a gang that waited for one slow set-up.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import AttemptId, JobId, Token, WorkerId
from iris_cli.core.lifecycle import attempts, workers
from iris_cli.core.observations import RemoteState, Silence, WorkerReport
from iris_cli.core.outcome import EndReason
from iris_cli.core.task import Attempt, AttemptState
from iris_cli.ops import observe
from iris_cli.ops.launch_request import MissingSecretError, launch_request
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LaunchRequest

Item = tuple[AttemptId, Attempt]

_LACKING = frozenset({RemoteState.ABSENT, RemoteState.PREPARING})
"""Nothing is there yet, or the call that prepared it may have been cut off; one that is under way minds no other."""

_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})


@dataclass(frozen=True, slots=True)
class _Work:
    """What one worker is to do: stops first, then launches that start at once, then those that wait for `go`."""

    worker: WorkerId
    stops: tuple[Item, ...]
    direct: tuple[Item, ...]
    staged: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came back: answers to weigh, and attempts of which it is certain that nothing was sent."""

    seen: tuple[observe.Answer, ...]
    not_sent: tuple[tuple[AttemptId, str], ...] = ()


class Dispatcher:
    """Stops and starts what the log asks for, each thing once in a cycle, and commits what comes back.

    A slow host delays only its own gang. `states` is what workers said of tokens in this cycle; `unheard` are
    the workers whose answer to its poll is still to come.
    """

    def __init__(self, session: Session, unheard: Container[WorkerId] = ()) -> None:
        self.session = session
        self.states: dict[Token, RemoteState] = {}
        self._unheard = unheard
        self._begun: set[tuple[AttemptId, AttemptState]] = set()

    def act(self, mine: Container[AttemptId] = (), only: Container[WorkerId] | None = None) -> None:
        """Carry out what is left to do on the workers in `only`, or on all.

        `mine` are the attempts that this invocation has just assigned. Of the others those are started of which
        their workers have said in this cycle that they can be.
        """
        cluster = self.session.cluster
        work = self._work(cluster, mine, only)
        for outcomes in self.session.fan_out(work, lambda each: _carry_out(self.session, cluster, each)):
            self._commit(outcomes)
            self._go_where_ready()
        self._go_where_ready()

    def _work(
        self, cluster: Cluster, mine: Container[AttemptId], only: Container[WorkerId] | None
    ) -> list[_Work]:
        now = self.session.clock.now()
        work = []
        for worker in cluster.workers.values():
            left_alone = workers.left_alone(worker, now, self.session.limits) or (
                only is not None and worker.id not in only
            )
            if not worker.claims or left_alone:
                continue
            new = [item for item in cluster.live_on(worker.id) if (item[0], item[1].state) not in self._begun]
            stops = tuple(item for item in new if item[1].state is AttemptState.STOPPING)
            starts = [item for item in new if self._is_to_start(item, mine)]
            staged = tuple(item for item in starts if _is_staged(cluster, item[0]))
            direct = tuple(item for item in starts if not _is_staged(cluster, item[0]))
            self._begun |= {(attempt_id, attempt.state) for attempt_id, attempt in (*stops, *starts)}
            if stops or starts:
                work.append(_Work(worker.id, stops, direct, staged))
        return work

    def _is_to_start(self, item: Item, mine: Container[AttemptId]) -> bool:
        """Whether to prepare an attempt here: we assigned it, or nobody else is about to and it isn't there yet."""
        attempt_id, attempt = item
        if attempt.state is not AttemptState.ASSIGNED:
            return False
        adopted = attempt.taken_over or attempt.acknowledged
        return attempt_id in mine or (adopted and self.states.get(attempt.token) in _LACKING)

    def _go_where_ready(self) -> None:
        """Send `go` to what is prepared: single tasks at once, a gang when all its ranks are."""
        cluster = self.session.cluster  # as of the last answers: a gang that is being stopped is not ready
        prepared: dict[JobId, list[Attempt]] = {}
        for attempt_id, attempt in cluster.live_attempts():
            said = self.states.get(attempt.token)
            if attempt.state is AttemptState.ASSIGNED and said is RemoteState.PREPARED:
                prepared.setdefault(attempt_id.task.job, []).append(attempt)
        tokens: dict[WorkerId, list[Token]] = {}
        for job, ranks in prepared.items():
            if not cluster.jobs[job].is_gang or _ready(cluster, job, self.states):
                for attempt in ranks:
                    tokens.setdefault(attempt.worker, []).append(attempt.token)
                    self.states[attempt.token] = RemoteState.LAUNCHING

        def go(worker_id: WorkerId) -> _Outcome:
            worker = cluster.workers[worker_id]
            answer = self.session.runner.go(
                self.session.target(worker),
                tokens[worker_id],
                boot_id=worker.boot_id,
                incarnation=worker.incarnation,
            )
            return _Outcome((observe.heard(self.session, cluster, answer),))

        for outcomes in self.session.fan_out(list(tokens), go):
            self._commit(outcomes)

    def _commit(self, outcomes: Iterable[_Outcome]) -> None:
        """Record outcomes under the lock. The state may have moved since: everything is decided again."""
        with self.session.transaction() as draft:
            for outcome in outcomes:
                for attempt_id, error in outcome.not_sent:
                    attempts.not_sent(draft, attempt_id, error)
                self.states |= observe.weigh(self.session, draft, outcome.seen, self._unheard)
                touched = dict.fromkeys(attempt_id.task.job for attempt_id, _ in outcome.not_sent)
                observe.settle(draft, touched, self.session.limits, self._unheard)


def _is_staged(cluster: Cluster, attempt_id: AttemptId) -> bool:
    job = cluster.jobs[attempt_id.task.job]
    return job.is_gang or bool(job.setup)


def _carry_out(session: Session, cluster: Cluster, work: _Work) -> _Outcome:
    """All calls for one worker, over one connection. Runs in a thread of its own."""
    worker = cluster.workers[work.worker]
    target = session.target(worker)
    seen: list[observe.Answer] = []
    not_sent: list[tuple[AttemptId, str]] = []
    answer: WorkerReport | Silence | None = None
    if work.stops:
        answer = session.runner.stop(target, [_stop_order(cluster, item) for item in work.stops])
        seen.append(observe.heard(session, cluster, answer))
    for items, go in ((work.direct, True), (work.staged, False)):
        if isinstance(answer, Silence):
            not_sent += [(attempt_id, answer.detail) for attempt_id, _ in items]
            continue
        requests, impossible = _requests(session, cluster, items)
        not_sent += impossible
        if not requests:
            continue
        answer = session.runner.prepare(
            target, list(requests.values()), boot_id=worker.boot_id, incarnation=worker.incarnation, go=go
        )
        seen.append(observe.heard(session, cluster, answer))
        if isinstance(answer, Silence) and not answer.sent:
            not_sent += [(attempt_id, f"{answer.step}: {answer.detail}") for attempt_id in requests]
    return _Outcome(tuple(seen), tuple(not_sent))


def _stop_order(cluster: Cluster, item: Item) -> tuple[Token, float]:
    attempt_id, attempt = item
    assert attempt.stop is not None
    job = cluster.jobs[attempt_id.task.job]
    return attempt.token, 0.0 if attempt.stop.reason is EndReason.DISPATCH_FAILED else job.grace


def _requests(
    session: Session, cluster: Cluster, items: Iterable[Item]
) -> tuple[dict[AttemptId, LaunchRequest], list[tuple[AttemptId, str]]]:
    """The launches that may be sent now: within our lease, or taken over; and with all their secrets.

    Beside them those that nobody could ever send, and why: one of them must not hold up the others.
    """
    requests, impossible = {}, []
    for attempt_id, attempt in items:
        expired = session.clock.now() - attempt.assigned_at >= session.limits.dispatch_lease
        if expired and not attempt.taken_over and not attempt.acknowledged:
            continue  # we slept: somebody else may have taken it over
        try:
            requests[attempt_id] = launch_request(session, cluster, attempt_id)
        except MissingSecretError:
            continue  # it can't start from here; whoever has the secret will start it
        except ValueError as error:
            impossible.append((attempt_id, f"it can't be sent: {error}"))
    return requests, impossible


def _ready(cluster: Cluster, job: JobId, known: Mapping[Token, RemoteState]) -> bool:
    """Whether every rank is set up, or beyond that and not ended badly: only then may any of them start."""
    for task in cluster.tasks_of(job):
        attempt = task.attempts[-1]
        ended_well = attempt.end is not None and attempt.end.reason is EndReason.OK
        set_up = attempt.state is AttemptState.ASSIGNED and known.get(attempt.token) in _SET_UP
        if not (ended_well or set_up or attempt.state is AttemptState.RUNNING):
            return False
    return True
