"""Carry out what the log says: start what was assigned, stop what is to be stopped. No lock is held here.

Launching is idempotent per token, so everything here may be done again by anybody: an attempt whose
dispatcher died is simply dispatched once more, and so is a gang that waited for one slow set-up.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.evolve import Draft
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

_BEYOND = frozenset(
    {
        RemoteState.PREPARED,
        RemoteState.LAUNCHING,
        RemoteState.RUNNING,
        RemoteState.ORPHANED,
        RemoteState.EXITED,
    }
)
_UNDER_WAY = _BEYOND | {RemoteState.PREPARING}


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

    seen: tuple[observe.Seen, ...]
    not_sent: tuple[tuple[AttemptId, str], ...] = ()


class Dispatcher:
    """Stops and starts what the log asks for, each thing once in a cycle, and commits what comes back.

    A slow host delays only its own gang. `states` is what workers said of tokens in this cycle.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.states: dict[Token, RemoteState] = {}
        self._begun: set[tuple[AttemptId, AttemptState]] = set()
        self._staged: set[JobId] = set()

    def act(self, mine: Container[AttemptId] = (), only: Container[WorkerId] | None = None) -> None:
        """Carry out what is left to do on the workers in `only`, or on all.

        `mine` are the attempts that this invocation has just assigned.
        """
        cluster = self.session.cluster
        work = self._work(cluster, mine, only)
        for outcomes in self.session.fan_out(work, lambda each: _carry_out(self.session, cluster, each)):
            _commit(self.session, outcomes)
            for outcome in outcomes:
                self.states |= _said(outcome.seen)
            self._go_where_ready(cluster)
        self._go_where_ready(cluster)

    def _work(
        self, cluster: Cluster, mine: Container[AttemptId], only: Container[WorkerId] | None
    ) -> list[_Work]:
        now = self.session.clock.now()
        work = []
        for worker in cluster.workers.values():
            left_alone = workers.cooling(worker, now, self.session.limits) or (
                only is not None and worker.id not in only
            )
            if not worker.claims or left_alone:
                continue
            new = [item for item in cluster.live_on(worker.id) if (item[0], item[1].state) not in self._begun]
            stops = tuple(item for item in new if item[1].state is AttemptState.STOPPING)
            ours = [item for item in new if _is_ours(item, mine)]
            self._staged |= {item[0].task.job for item in ours if _is_staged(cluster, item[0])}
            unprepared = [item for item in ours if self.states.get(item[1].token) not in _UNDER_WAY]
            staged = tuple(item for item in unprepared if _is_staged(cluster, item[0]))
            direct = tuple(item for item in unprepared if not _is_staged(cluster, item[0]))
            self._begun |= {(attempt_id, attempt.state) for attempt_id, attempt in (*stops, *ours)}
            if stops or unprepared:
                work.append(_Work(worker.id, stops, direct, staged))
        return work

    def _go_where_ready(self, cluster: Cluster) -> None:
        """Send `go` to the gangs whose ranks are all set up."""
        ready = [job for job in cluster.jobs if job in self._staged and _ready(cluster, job, self.states)]
        self._staged.difference_update(ready)
        tokens: dict[WorkerId, list[Token]] = {}
        for job in ready:
            for _, attempt in cluster.live_of(job):
                if self.states.get(attempt.token) is RemoteState.PREPARED:
                    tokens.setdefault(attempt.worker, []).append(attempt.token)

        def go(worker_id: WorkerId) -> _Outcome:
            worker = cluster.workers[worker_id]
            target = self.session.target(worker)
            answer = self.session.runner.go(
                target, tokens[worker_id], boot_id=worker.boot_id, incarnation=worker.incarnation
            )
            return _Outcome((answer,))

        for outcomes in self.session.fan_out(list(tokens), go):
            _commit(self.session, outcomes)


def _is_ours(item: Item, mine: Container[AttemptId]) -> bool:
    """Whether this invocation may start the attempt: it assigned it, or nobody else is about to."""
    attempt_id, attempt = item
    assigned = attempt.state is AttemptState.ASSIGNED
    return assigned and (attempt_id in mine or attempt.taken_over or attempt.acknowledged)


def _is_staged(cluster: Cluster, attempt_id: AttemptId) -> bool:
    job = cluster.jobs[attempt_id.task.job]
    return job.is_gang or bool(job.setup)


def _carry_out(session: Session, cluster: Cluster, work: _Work) -> _Outcome:
    """All calls for one worker, over one connection. Runs in a thread of its own."""
    worker = cluster.workers[work.worker]
    target = session.target(worker)
    seen: list[observe.Seen] = []
    not_sent: list[tuple[AttemptId, str]] = []
    if work.stops:
        seen.append(session.runner.stop(target, [_stop_order(cluster, item) for item in work.stops]))
    for items, go in ((work.direct, True), (work.staged, False)):
        if seen and isinstance(seen[-1], Silence):
            not_sent += [(attempt_id, str(seen[-1].detail)) for attempt_id, _ in items]
            continue
        requests = _requests(session, cluster, items)
        if not requests:
            continue
        answer = session.runner.prepare(
            target, list(requests.values()), boot_id=worker.boot_id, incarnation=worker.incarnation, go=go
        )
        seen.append(answer)
        if isinstance(answer, Silence) and not answer.sent:
            not_sent += [(attempt_id, f"{answer.step}: {answer.detail}") for attempt_id in requests]
    return _Outcome(tuple(seen), tuple(not_sent))


def _stop_order(cluster: Cluster, item: Item) -> tuple[Token, float]:
    attempt_id, attempt = item
    assert attempt.stop is not None
    job = cluster.jobs[attempt_id.task.job]
    return attempt.token, 0.0 if attempt.stop.reason is EndReason.DISPATCH_FAILED else job.grace


def _requests(session: Session, cluster: Cluster, items: Iterable[Item]) -> dict[AttemptId, LaunchRequest]:
    """The launches that may be sent now: within our lease, or taken over; and with all their secrets."""
    requests = {}
    for attempt_id, attempt in items:
        expired = session.clock.now() - attempt.assigned_at >= session.limits.dispatch_lease
        if expired and not attempt.taken_over and not attempt.acknowledged:
            continue  # we slept: somebody else may have taken it over
        try:
            requests[attempt_id] = launch_request(session, cluster, attempt_id)
        except MissingSecretError:
            continue  # it can't start from here; whoever has the secret will start it
    return requests


def _ready(cluster: Cluster, job: JobId, known: Mapping[Token, RemoteState]) -> bool:
    """Whether every rank is set up, or beyond that and not ended badly: only then may any of them start."""
    for task in cluster.tasks_of(job):
        attempt = task.attempts[-1]
        ended_well = attempt.end is not None and attempt.end.reason is EndReason.OK
        if (
            not ended_well
            and attempt.state is not AttemptState.RUNNING
            and known.get(attempt.token) not in _BEYOND
        ):
            return False
    return True


def _commit(session: Session, outcomes: Iterable[_Outcome]) -> None:
    """Record outcomes under the lock. The state may have moved since: everything is decided again."""
    with session.transaction() as draft:
        for outcome in outcomes:
            _record(session, draft, outcome)


def _record(session: Session, draft: Draft, outcome: _Outcome) -> None:
    for attempt_id, error in outcome.not_sent:
        attempts.not_sent(draft, attempt_id, error)
    observe.weigh(session, draft, outcome.seen)
    observe.settle(
        draft, dict.fromkeys(attempt_id.task.job for attempt_id, _ in outcome.not_sent), session.limits
    )


def _said(seen: Iterable[observe.Seen]) -> dict[Token, RemoteState]:
    return {
        report.token: report.state
        for answer in seen
        if isinstance(answer, WorkerReport)
        for report in answer.attempts
    }
