"""Choose the workers to poll, and weigh their answers: polling needs no lock, weighing does."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field, structs

from iris_cli.core import AttemptId, Cluster, JobId, Token, Worker, WorkerCondition, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts, failure_detection, gangs, identity, jobs, reaping, workers
from iris_cli.core.messages.observations import (
    FINAL_STATES,
    AttemptReport,
    ProbeReport,
    ReapReport,
    RemoteState,
    Silence,
    SilenceKind,
    WorkerReport,
)
from iris_cli.ops.cycle import requests
from iris_cli.ops.cycle.answers import MOST_UPTIME, Fetched, LogPieces, Seen, believed, facts_of
from iris_cli.ops.cycle.quiet import with_places
from iris_cli.ops.cycle.requests import Asked, Key, Outcomes
from iris_cli.ops.secret_values import known_values, masked
from iris_cli.ops.session import ReadAt, Session

_ON_ITS_WAY = frozenset({RemoteState.PREPARING, RemoteState.PREPARED, RemoteState.LAUNCHING})

States = dict[Token, RemoteState]
"""Last state that workers reported for each token."""


class Question(Struct, frozen=True):
    """One worker to probe, to poll for its live attempts, or both in this order.

    `stops` are its ghosts, each with its grace in seconds: they are stopped first after the probe.
    """

    worker: WorkerId
    probe: bool
    stops: tuple[tuple[Token, float], ...] = ()


class Known(Struct, frozen=True):
    """State of a worker when it was polled: boot id and incarnation, and its live attempts by token.

    `reaped` are the attempts whose files it was told to remove. An answer may be weighed much later, because
    another invocation holds the lock or this process was stopped.
    """

    worker: WorkerId
    identity: tuple[str, str] | None
    attempts: Mapping[Token, AttemptId]
    acknowledged: frozenset[Token]
    ghosts: frozenset[Token] = frozenset()
    reaped: Mapping[Token, AttemptId] = field(default_factory=dict)

    @property
    def tokens(self) -> frozenset[Token]:
        """Tokens that the worker may report on."""
        return self.ghosts.union(self.attempts, self.reaped)


class Answer(Struct, frozen=True):
    """Answer of a worker, the time of the answer and of the call, and the worker's known state at the call.

    `asked` are requests of its tasks. The end of attempts in `deferred` is weighed after their remaining
    requests. `launching` are the attempts that the call prepares or starts.
    """

    seen: Seen
    at: float
    known: Known
    asked_at: float | None = None
    asked: tuple[Asked, ...] = ()
    deferred: frozenset[Token] = frozenset()
    launching: tuple[AttemptId, ...] = ()


def known_of(cluster: Cluster, worker: WorkerId, also: Iterable[Token] = ()) -> Known:
    """Return the known state of a worker before a call; `also` adds tokens of attempts that ended in the log."""
    live = list(cluster.live_on(worker))
    return Known(
        worker=worker,
        identity=_identity(cluster, worker),
        attempts={attempt.token: attempt_id for attempt_id, attempt in live},
        acknowledged=frozenset(attempt.token for _, attempt in live if attempt.acknowledged),
        ghosts=frozenset(ghost.token for ghost in cluster.ghosts.get(worker, ())).union(also),
    )


def heard(
    session: Session, known: Known, asked_at: float, seen: Seen, launching: tuple[AttemptId, ...] = ()
) -> Answer:
    """Return the answer of a worker after validation: an implausible one becomes a Silence."""
    said = believed(seen, known.worker, known.tokens)
    asked = requests.read(said, known.attempts)
    return Answer(said, session.clock.now(), known, asked_at, asked, launching=launching)


def questions(session: Session, cluster: Cluster, now: float) -> list[Question]:
    """Return the workers to poll: new ones, those with claims or ghosts, and unhealthy ones after their back-off.

    A healthy idle worker is polled only as a witness for another worker's silence, or at most once a day to remove
    files. Healthy workers come first, because others may answer slowly.
    """
    asked = []
    for worker in cluster.workers.values():
        if workers.is_backing_off(cluster, worker, now, session.limits):
            continue
        probe = _needs_probe(session, worker, now)
        stops = _stops(cluster, worker.id)
        well = worker.condition is WorkerCondition.HEALTHY
        reap = reaping.due(cluster, worker, now, session.limits, pause=reaping.PAUSE_WITHOUT_POLLS)
        if probe or worker.claims or stops or reap or not well:
            asked.append(Question(worker.id, probe, stops))
    witnesses = failure_detection.witnesses(cluster, {question.worker: None for question in asked})
    asked += [Question(worker, probe=False) for worker in witnesses]
    return sorted(
        asked, key=lambda each: cluster.workers[each.worker].condition is not WorkerCondition.HEALTHY
    )


def _stops(cluster: Cluster, worker: WorkerId) -> tuple[tuple[Token, float], ...]:
    return tuple(
        (ghost.token, cluster.jobs[ghost.attempt.task.job].grace) for ghost in cluster.ghosts.get(worker, ())
    )


def _needs_probe(session: Session, worker: Worker, now: float) -> bool:
    unknown = worker.condition in (WorkerCondition.UNPROBED, WorkerCondition.UNTRUSTED)
    if unknown or not worker.incarnation or worker.unschedulable:
        return True
    host = session.hosts.get(worker.id)
    if host is not None and host.fingerprint != worker.declared:
        return True
    return workers.is_quarantine_over(worker, now, session.limits)


def asking(
    session: Session,
    cluster: Cluster,
    read_at: ReadAt,
    question: Question,
    known: Known,
    held: Sequence[Key] = (),
) -> Callable[[], Seen]:
    """Return the call for a question, or for its first part; the worker omits requests in `held`."""
    worker = cluster.workers[question.worker]
    target = session.target(worker)
    if question.probe:
        return partial(session.runner.probe, target, first_contact=True)
    if question.stops:
        return partial(session.runner.stop, target, question.stops)

    def poll() -> Seen:
        renew = failure_detection.may_renew_leases(worker, session.age(read_at), session.limits)
        seen = session.runner.poll(target, list(known.attempts), renew=renew, held=held)
        return with_places(session, cluster, target, known.attempts, seen)

    return poll


def rest_of(question: Question | None, answer: Answer) -> Question | None:
    """Return the rest of the question after an answer, or a new question if the host rebooted; None if complete."""
    if isinstance(answer.seen, Silence):
        return None
    if question is None:
        return Question(answer.known.worker, probe=False) if rebooted(answer) else None
    if not (question.probe or question.stops):
        return None
    rest = structs.replace(question, probe=False, stops=question.stops if question.probe else ())
    return rest if rest.stops or answer.known.attempts else None


def rebooted(answer: Answer) -> bool:
    """Return True if the host rebooted and its answer omits attempts that ran before."""
    seen, known = answer.seen, answer.known
    if isinstance(seen, Silence) or known.identity is None or known.identity[1] != seen.incarnation:
        return False
    told = {report.token for report in seen.attempts} if isinstance(seen, WorkerReport) else set()
    return known.identity[0] != seen.boot_id and not told.issuperset(known.attempts)


def weigh(
    session: Session, draft: Draft, batch: Iterable[Answer], unheard: Container[WorkerId] = ()
) -> tuple[States, Outcomes]:
    """Weigh a batch of answers on the draft. Return the reported states and the outcomes of requests.

    Each answer is weighed separately: a fault in one does not affect the others.
    """
    states: States = {}
    outcomes: Outcomes = {}
    touched: dict[JobId, None] = {}
    for answer in batch:
        worker = answer.known.worker
        if _identity(draft.cluster, worker) != answer.known.identity:
            continue  # worker forgotten, rebooted or re-created: the answer is about its predecessor
        affected = {attempt_id.task.job: None for attempt_id, _ in draft.cluster.live_on(worker)}
        kept = len(draft.events)
        try:
            told, decided = _weigh_one(session, draft, answer)
            states |= told
            outcomes |= decided
        except Exception as error:
            draft.roll_back(kept)
            session.fault(f"checking the answer of {worker}", error)
            detail = f"the check failed: {type(error).__name__}"
            useless = Silence(worker=worker, kind=SilenceKind.PROTOCOL, step="answer", detail=detail)
            workers.record_silence(draft, useless, session.limits)
        # A gang's verdict may have waited for this answer; other jobs change only if events were recorded.
        news = len(draft.events) > kept
        touched.update((job, None) for job in affected if news or draft.cluster.jobs[job].is_gang)
    settle(session, draft, touched, unheard)
    return states, outcomes


def _identity(cluster: Cluster, worker_id: WorkerId) -> tuple[str, str] | None:
    worker = cluster.workers.get(worker_id)
    return (worker.boot_id, worker.incarnation) if worker is not None else None


def settle(
    session: Session, draft: Draft, touched: Iterable[JobId], unheard: Container[WorkerId] = ()
) -> None:
    """Settle the rounds and jobs affected by the last answers. A fault in one does not affect the others."""
    for job in touched:
        kept = len(draft.events)
        try:
            if draft.cluster.jobs[job].is_gang:
                gangs.decide_round(draft, job, session.limits, unheard)
            jobs.end_if_decided(draft, job)
        except Exception as error:
            draft.roll_back(kept)
            session.fault(f"settling {job}", error)


def weigh_silence(session: Session, draft: Draft, seen: Iterable[Seen]) -> None:
    """Weigh the silences of a cycle at its end, together with all of its answers."""
    policies = {
        worker: session.hosts[worker].replace_lost if worker in session.hosts else session.config.replace_lost
        for worker in draft.cluster.workers
    }
    said = (each for each in seen if not isinstance(each, LogPieces | Fetched))
    touched = failure_detection.count_silences(draft, said, policies, session.limits)
    touched += failure_detection.end_leases(draft, session.limits)
    settle(session, draft, dict.fromkeys(touched))


def settle_waiting(session: Session, draft: Draft, unheard: Container[WorkerId] = ()) -> None:
    """Settle the rounds whose verdict waited for evidence that may never come."""
    waiting = [job.id for job in draft.cluster.open_jobs() if job.is_gang and not job.end]
    settle(session, draft, waiting, unheard)


_NOTHING: tuple[States, Outcomes] = ({}, {})


def _weigh_one(session: Session, draft: Draft, answer: Answer) -> tuple[States, Outcomes]:
    seen = answer.seen
    known = answer.known
    if isinstance(seen, Silence):
        launching = bool(answer.launching)
        workers.record_silence(draft, seen, session.limits, sent_at=answer.asked_at, launching=launching)
        if launching and seen.sent:
            _give_up_launches(draft, answer)
        if known.reaped and seen.sent:
            reaping.record_reaped(draft, known.worker, tuple(known.reaped.values()))
        return _NOTHING
    if isinstance(seen, LogPieces | Fetched):
        return _NOTHING
    if answer.asked_at is not None:
        workers.record_clock(draft, seen.worker, seen.clock, answer.asked_at, answer.at)
    if isinstance(seen, ProbeReport):
        found = facts_of(session, draft.cluster, seen)
        identity.apply_probe(draft, found, session.limits)
        return _NOTHING
    if isinstance(seen, ReapReport):
        if (seen.boot_id, seen.incarnation) == known.identity:
            gone = {known.reaped[token] for token in seen.tokens}
            reaping.record_reaped(draft, known.worker, tuple(known.reaped.values()), gone)
        return _NOTHING
    if draft.cluster.workers[seen.worker].condition is WorkerCondition.UNTRUSTED:
        _give_up_launches(draft, answer)
        return _NOTHING  # only a probe restores trust
    if not identity.check_identity(draft, seen, session.limits):
        _give_up_launches(draft, answer)  # a worker in another boot or incarnation refuses them
        return _NOTHING
    return _weigh_report(session, draft, answer, seen)


def _give_up_launches(draft: Draft, answer: Answer) -> None:
    """Release attempts that a call was to launch and its answer does not confirm, for the next cycle to dispatch."""
    live = [attempt_id for attempt_id, _ in draft.cluster.live_on(answer.known.worker)]
    attempts.release_dispatch(draft, (each for each in live if each in answer.launching))


def _weigh_report(
    session: Session, draft: Draft, answer: Answer, seen: WorkerReport
) -> tuple[States, Outcomes]:
    """Weigh a worker's report on its attempts, and their requests.

    Requests are decided after reports of live attempts, since a child needs a running parent, and before ends.
    """
    identity.apply_ghost_reports(draft, seen.worker, seen.attempts)
    by_token = {attempt.token: attempt_id for attempt_id, attempt in draft.cluster.live_on(seen.worker)}
    waited = max(0.0, draft.at - answer.at)
    deferred = set(answer.deferred)

    def weigh_attempts(over: bool) -> None:
        for report in seen.attempts:
            attempt_id = by_token.get(report.token)
            if attempt_id is None or (report.state in FINAL_STATES) is not over:
                continue
            if report.state is RemoteState.ABSENT and report.token not in answer.known.acknowledged:
                continue  # may have been launched after the report
            attempt = draft.cluster.attempt(attempt_id)
            if over and report.token in deferred and attempt.stop is None:
                continue  # its remaining requests come first
            lived = max(0.0, draft.at - attempt.assigned_at)
            report = _masked(draft, attempt_id, _aged(report, waited, lived))
            attempts.apply_report(draft, attempt_id, report, session.limits)

    weigh_attempts(over=False)
    asked = (each for each in answer.asked if by_token.get(each.token) == each.attempt)
    outcomes = requests.carry_out(session, draft, asked)
    deferred.update(token for (token, _), each in outcomes.items() if each.waits_for_files)
    weigh_attempts(over=True)
    return {report.token: report.state for report in seen.attempts}, outcomes


def _aged(report: AttemptReport, waited: float, lived: float) -> AttemptReport:
    """Return the report with its ages advanced to the present; none precedes the assignment.

    Ages of attempts that are still starting are not advanced. `ran` comes from the worker's clock alone, so
    setting this machine's clock does not change it.
    """
    ran = _ran(report)
    heard_for = waited
    if report.state in _ON_ITS_WAY:
        waited = 0.0
    started, ended = (
        None if ago is None else min(round(ago + waited, 3), lived)
        for ago in (report.started_ago, report.ended_ago)
    )
    return structs.replace(report, started_ago=started, ended_ago=ended, ran=ran, waited=heard_for)


def _masked(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> AttemptReport:
    """Return the report with known secret values of the job masked in its log tail."""
    values = known_values(draft.cluster.jobs[attempt_id.task.job]) if report.log_tail else ()
    if not values:
        return report
    tail = masked(report.log_tail.encode("utf-8", "replace"), values).decode("utf-8", "replace")
    return structs.replace(report, log_tail=tail)


def _ran(report: AttemptReport) -> float | None:
    """Return the seconds from start to end by the worker's clock; None if unreported or impossible."""
    started, ended = report.started_ago, report.ended_ago
    if report.state not in FINAL_STATES or started is None or ended is None:
        return None
    return round(started - ended, 3) if 0 <= ended <= started <= MOST_UPTIME else None
