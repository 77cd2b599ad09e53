"""Record the answers of workers."""

from collections.abc import Container, Iterable, Mapping

from msgspec import Struct, field, structs

from iris_cli.core import AttemptId, Cluster, JobId, Limits, Token, WorkerCondition, WorkerId
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
from iris_cli.core.messages.requests import Submit
from iris_cli.ops.cycle import answers, requests
from iris_cli.ops.cycle.requests import Outcomes, TaskRequest
from iris_cli.ops.secret_values import mask, values_to_mask
from iris_cli.ops.session import Session

_STARTING = frozenset({RemoteState.PREPARING, RemoteState.PREPARED, RemoteState.LAUNCHING})

States = dict[Token, RemoteState]
"""The state that a worker last reported for each attempt."""


class CallContext(Struct, frozen=True):
    """The state of a worker in the log when the worker is called.

    `identity`: boot id and incarnation; None for a forgotten worker. `attempts`: the live attempts by token.
    `acknowledged`: the attempts that the worker has confirmed. `ghosts`: other attempts that the worker may report on.
    `reaped`: the attempts whose files the call deletes. The answer may be recorded much later, if another invocation
    holds the lock or this process is suspended.
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


class WorkerAnswer(Struct, frozen=True):
    """The answer of a worker, or its silence.

    `at` is the time of the answer, `called_at` the time of the call. `requests` are requests of the worker's tasks.
    Ends of attempts in `deferred` are not recorded yet, because these attempts have more requests. `launching` are the
    attempts that the call prepares or starts.
    """

    observation: answers.Observation
    at: float
    context: CallContext
    called_at: float
    requests: tuple[TaskRequest, ...] = ()
    deferred: frozenset[Token] = frozenset()
    launching: tuple[AttemptId, ...] = ()


def call_context(cluster: Cluster, worker: WorkerId, extra_tokens: Iterable[Token] = ()) -> CallContext:
    """Return the context of a call to a worker. `extra_tokens`: further attempts that the worker may report on."""
    live = list(cluster.live_attempts_on(worker))
    return CallContext(
        worker=worker,
        identity=_identity(cluster, worker),
        attempts={attempt.token: attempt_id for attempt_id, attempt in live},
        acknowledged=frozenset(attempt.token for _, attempt in live if attempt.acknowledged),
        ghosts=frozenset(ghost.token for ghost in cluster.ghosts.get(worker, ())).union(extra_tokens),
    )


def validated_answer(
    session: Session,
    context: CallContext,
    called_at: float,
    observation: answers.Observation,
    launching: tuple[AttemptId, ...] = (),
) -> WorkerAnswer:
    """Return the validated answer of a worker. An implausible answer becomes a Silence."""
    valid = answers.validate(observation, context.worker, context.tokens)
    task_requests = requests.read_requests(valid, context.attempts)
    return WorkerAnswer(valid, session.clock.now(), context, called_at, task_requests, launching=launching)


def record_answers(
    session: Session, draft: Draft, batch: Iterable[WorkerAnswer], unanswered: Container[WorkerId] = ()
) -> tuple[States, Outcomes]:
    """Record answers in the draft. Return the reported states of attempts and the outcomes of requests.

    Each answer is recorded separately, so that an internal error in one answer does not affect the others.
    `unanswered`: workers whose answers may still arrive in this cycle.
    """
    states: States = {}
    outcomes: Outcomes = {}
    touched: dict[JobId, None] = {}
    for answer in batch:
        worker = answer.context.worker
        if _identity(draft.cluster, worker) != answer.context.identity:
            continue  # since the call, the worker was forgotten, or its boot id or incarnation has changed
        affected = {attempt_id.task.job: None for attempt_id, _ in draft.cluster.live_attempts_on(worker)}
        events_before = len(draft.events)
        try:
            new_states, new_outcomes = _record_answer(session, draft, answer)
            states |= new_states
            outcomes |= new_outcomes
        except Exception as error:
            draft.roll_back(events_before)
            session.fault(f"checking the answer of {worker}", error)
            detail = f"the check failed: {type(error).__name__}"
            silence = Silence(worker=worker, kind=SilenceKind.PROTOCOL, step="answer", detail=detail)
            workers.record_silence(draft, silence, session.limits)
        # A gang's verdict may have waited for this answer. Other jobs change only if events were recorded.
        has_changed = len(draft.events) > events_before
        touched.update((job, None) for job in affected if has_changed or draft.cluster.jobs[job].is_gang)
    settle(session, draft, touched, unanswered)
    return states, outcomes


def _identity(cluster: Cluster, worker_id: WorkerId) -> tuple[str, str] | None:
    worker = cluster.workers.get(worker_id)
    return (worker.boot_id, worker.incarnation) if worker is not None else None


def settle(
    session: Session, draft: Draft, touched: Iterable[JobId], unanswered: Container[WorkerId] = ()
) -> None:
    """Record the verdicts and ends of these jobs and of their rounds. An error in one job does not affect the others.

    A verdict that needs evidence from an `unanswered` worker is recorded later.
    """
    for job in touched:
        events_before = len(draft.events)
        try:
            if draft.cluster.jobs[job].is_gang:
                gangs.decide_round(draft, job, session.limits, unanswered)
            jobs.end_if_decided(draft, job)
        except Exception as error:
            draft.roll_back(events_before)
            session.fault(f"settling {job}", error)


def decide_losses(session: Session, draft: Draft, observations: Iterable[answers.Observation]) -> None:
    """Record which workers are lost and which leases have expired, according to all answers of a cycle."""
    policies = {
        worker: session.hosts[worker].replace_lost if worker in session.hosts else session.config.replace_lost
        for worker in draft.cluster.workers
    }
    about_attempts = (
        each for each in observations if not isinstance(each, answers.LogChunks | answers.WorkspaceFetch)
    )
    touched = failure_detection.count_silences(draft, about_attempts, policies, session.limits)
    touched += failure_detection.end_leases(draft, session.limits)
    settle(session, draft, dict.fromkeys(touched))


def _record_answer(session: Session, draft: Draft, answer: WorkerAnswer) -> tuple[States, Outcomes]:
    observation = answer.observation
    if isinstance(observation, Silence):
        _record_silence(session, draft, answer, observation)
    elif not isinstance(observation, answers.LogChunks | answers.WorkspaceFetch):
        workers.record_clock(draft, observation.worker, observation.clock, answer.called_at, answer.at)
        if isinstance(observation, ProbeReport):
            identity.apply_probe(
                draft, answers.worker_facts(session, draft.cluster, observation), session.limits
            )
        elif isinstance(observation, ReapReport):
            _record_reaped(draft, answer.context, observation)
        elif _is_trusted(draft, observation, session.limits):
            return _record_report(session, draft, answer, observation)
        else:
            _release_launches(draft, answer)
    return {}, {}


def _record_silence(session: Session, draft: Draft, answer: WorkerAnswer, silence: Silence) -> None:
    context, is_launch = answer.context, bool(answer.launching)
    workers.record_silence(draft, silence, session.limits, sent_at=answer.called_at, launching=is_launch)
    if is_launch and silence.sent:
        _release_launches(draft, answer)
    if context.reaped and silence.sent:
        reaping.record_reaped(draft, context.worker, tuple(context.reaped.values()))


def _record_reaped(draft: Draft, context: CallContext, report: ReapReport) -> None:
    if (report.boot_id, report.incarnation) == context.identity:
        gone = {context.reaped[token] for token in report.tokens}
        reaping.record_reaped(draft, context.worker, tuple(context.reaped.values()), gone)


def _is_trusted(draft: Draft, report: WorkerReport, limits: Limits) -> bool:
    """Return True if the report is from the recorded worker and boot. Otherwise the worker has launched nothing."""
    if draft.cluster.workers[report.worker].condition is WorkerCondition.UNTRUSTED:
        return False  # only a probe restores trust
    return identity.check_identity(draft, report, limits)


def _release_launches(draft: Draft, answer: WorkerAnswer) -> None:
    """Let the next cycle dispatch the attempts that the call should have launched, because no answer confirms them."""
    live = [attempt_id for attempt_id, _ in draft.cluster.live_attempts_on(answer.context.worker)]
    attempts.release_dispatch(draft, (each for each in live if each in answer.launching))


def _record_report(
    session: Session, draft: Draft, answer: WorkerAnswer, observation: WorkerReport
) -> tuple[States, Outcomes]:
    """Record a worker's report on its attempts, and carry out or refuse their requests.

    Reports of live attempts are recorded before the requests, because a child job needs a running parent. Ends of
    attempts are recorded last, and not before their remaining requests, unless iris has stopped them.
    """
    identity.apply_ghost_reports(draft, observation.worker, observation.attempts)
    by_token = {attempt.token: name for name, attempt in draft.cluster.live_attempts_on(observation.worker)}
    reports = [
        each
        for each in observation.attempts
        # An attempt that is ABSENT and not acknowledged may have been launched after the report.
        if each.token in by_token
        and (each.state is not RemoteState.ABSENT or each.token in answer.context.acknowledged)
    ]
    for report in reports:
        if report.state not in FINAL_STATES:
            _apply_report(session, draft, answer.at, by_token[report.token], report)
    task_requests = (each for each in answer.requests if by_token.get(each.token) == each.attempt)
    outcomes = requests.decide_requests(session, draft, task_requests)
    # A request for a child job is carried out only after the workspace of the child job was fetched.
    fetching = {token for (token, _), each in outcomes.items() if isinstance(each.result, Submit)}
    for report in reports:
        if report.state in FINAL_STATES:
            attempt_id = by_token[report.token]
            has_open_requests = report.token in answer.deferred or report.token in fetching
            if not has_open_requests or draft.cluster.attempt(attempt_id).stop is not None:
                _apply_report(session, draft, answer.at, attempt_id, report)
    return {report.token: report.state for report in observation.attempts}, outcomes


def _apply_report(
    session: Session, draft: Draft, answered_at: float, attempt_id: AttemptId, report: AttemptReport
) -> None:
    waited = max(0.0, draft.at - answered_at)
    max_age = max(0.0, draft.at - draft.cluster.attempt(attempt_id).assigned_at)
    report = _with_masked_tail(draft, attempt_id, _with_current_ages(report, waited, max_age))
    attempts.apply_report(draft, attempt_id, report, session.limits)


def _with_current_ages(report: AttemptReport, waited: float, max_age: float) -> AttemptReport:
    """Return the report with its ages increased by `waited` (seconds since the answer), up to `max_age`.

    Ages of attempts that are still starting are not increased. `ran` is computed from the worker's clock only, so a
    change of this machine's clock has no effect on it.
    """
    added = 0.0 if report.state in _STARTING else waited
    started, ended = (
        None if ago is None else min(round(ago + added, 3), max_age)
        for ago in (report.started_ago, report.ended_ago)
    )
    ran = _run_time(report)
    waited += report.waited
    return structs.replace(report, started_ago=started, ended_ago=ended, ran=ran, waited=waited)


def _with_masked_tail(draft: Draft, attempt_id: AttemptId, report: AttemptReport) -> AttemptReport:
    values = values_to_mask(draft.cluster.jobs[attempt_id.task.job]) if report.log_tail else ()
    if not values:
        return report
    tail = mask(report.log_tail.encode("utf-8", "replace"), values).decode("utf-8", "replace")
    return structs.replace(report, log_tail=tail)


def _run_time(report: AttemptReport) -> float | None:
    """Return the seconds from start to end of an attempt by the worker's clock; None if unknown or implausible."""
    started, ended = report.started_ago, report.ended_ago
    if report.state not in FINAL_STATES or started is None or ended is None:
        return None
    return round(started - ended, 3) if 0 <= ended <= started <= answers.MAX_UPTIME else None
