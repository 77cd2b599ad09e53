"""Ask workers how they are, in parallel and without the lock; weigh what they say, under it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from iris_cli.core.cluster import Cluster
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId, Token, WorkerId
from iris_cli.core.lifecycle import attempts, gangs, identity, jobs, workers
from iris_cli.core.limits import Limits
from iris_cli.core.observations import ProbeReport, RemoteState, Silence, WorkerReport
from iris_cli.core.worker import Worker, WorkerCondition
from iris_cli.ops.facts import facts_of
from iris_cli.ops.session import Session

Seen = WorkerReport | ProbeReport | Silence
States = dict[Token, RemoteState]
"""What workers said last about each token."""


@dataclass(frozen=True, slots=True)
class Question:
    """One worker to ask: a probe, or a poll of its live attempts."""

    worker: WorkerId
    probe: bool
    tokens: tuple[Token, ...] = ()


def questions(session: Session, cluster: Cluster, now: float) -> list[Question]:
    """Whom to ask: who runs something, who is not well and whose back-off is over, and who is new.

    A healthy idle worker is left alone.
    """
    asked = []
    for worker in cluster.workers.values():
        if workers.cooling(worker, now, session.limits):
            continue
        tokens = tuple(attempt.token for _, attempt in cluster.live_on(worker.id))
        if _needs_probe(session, worker, now):
            asked.append(Question(worker.id, probe=True))
        elif tokens or worker.condition is not WorkerCondition.HEALTHY:
            asked.append(Question(worker.id, probe=False, tokens=tokens))
    return asked


def _needs_probe(session: Session, worker: Worker, now: float) -> bool:
    if worker.condition in (WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED) or not worker.incarnation:
        return True
    host = session.hosts.get(worker.id)
    if host is not None and host.fingerprint != worker.declared:
        return True
    return worker.quarantined and now - worker.quarantined_at > session.limits.quarantine_retry


def ask(session: Session, cluster: Cluster, asked: list[Question]) -> Iterator[list[Seen]]:
    """Put the questions to the workers; answers come in small batches, as they arrive."""

    def one(question: Question) -> Seen:
        target = session.target(cluster.workers[question.worker])
        if question.probe:
            return session.runner.probe(target, first_contact=True)
        return session.runner.poll(target, question.tokens)

    return session.fan_out(asked, one)


def weigh(session: Session, draft: Draft, batch: Iterable[Seen], unheard: Container[WorkerId] = ()) -> States:
    """Decide what a batch of answers means, on the draft. Returns what was said of each token."""
    states: States = {}
    touched: dict[JobId, None] = {}
    for seen in batch:
        if seen.worker not in draft.cluster.workers:
            continue  # forgotten while we asked
        affected = [attempt_id.task.job for attempt_id, _ in draft.cluster.live_on(seen.worker)]
        touched.update(dict.fromkeys(affected))
        states |= _weigh_one(session, draft, seen)
    settle(draft, touched, session.limits, unheard)
    return states


def settle(draft: Draft, touched: Iterable[JobId], limits: Limits, unheard: Container[WorkerId] = ()) -> None:
    """Settle the rounds and the jobs that the last answers were about."""
    for job in touched:
        if draft.cluster.jobs[job].is_gang:
            gangs.settle(draft, job, limits, unheard)
        jobs.settle(draft, job)


def settle_waiting(draft: Draft, limits: Limits) -> None:
    """Settle the rounds whose verdict waited for evidence that may never come."""
    settle(draft, [job.id for job in draft.cluster.jobs.values() if job.is_gang and not job.end], limits)


def _weigh_one(session: Session, draft: Draft, seen: Seen) -> States:
    if isinstance(seen, Silence):
        workers.silent(draft, seen, session.limits)
        return {}
    if isinstance(seen, ProbeReport):
        found = facts_of(session, draft.cluster, seen)
        identity.probed(draft, found, session.limits)
        return {}
    if not identity.answered(draft, seen, session.limits):
        return {}
    by_token = {attempt.token: attempt_id for attempt_id, attempt in draft.cluster.live_on(seen.worker)}
    for report in seen.attempts:
        if report.token in by_token:
            attempts.reported(draft, by_token[report.token], report, session.limits)
    return {report.token: report.state for report in seen.attempts}
