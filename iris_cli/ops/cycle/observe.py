"""Choose the workers to poll, and record their answers. Only the recording needs the lock."""

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
from iris_cli.core.messages.requests import Submit
from iris_cli.ops.cycle import answers, requests
from iris_cli.ops.cycle.requests import Key, Outcomes, TaskRequest
from iris_cli.ops.outcomes.stack_places import with_stack_places
from iris_cli.ops.secret_values import mask, values_to_mask
from iris_cli.ops.session import ReadAt, Session

_STARTING = frozenset({RemoteState.PREPARING, RemoteState.PREPARED, RemoteState.LAUNCHING})

States = dict[Token, RemoteState]
"""The state that a worker last reported for each attempt."""
_NO_RESULT: tuple[States, Outcomes] = ({}, {})


class Poll(Struct, frozen=True):
    """Up to three calls to a worker: a probe if `probe` is True, then a stop of the ghosts in `stops`, then a poll."""

    worker: WorkerId
    probe: bool
    stops: tuple[tuple[Token, float], ...] = ()  # each with its grace period in seconds


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
    called_at: float | None = None
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


def polls_due(session: Session, cluster: Cluster, now: float) -> list[Poll]:
    """Return the polls of this cycle, at most one for each worker, healthy workers first because they answer soon.

    New or unhealthy workers, and workers with live attempts or ghosts, are polled unless they are in back-off. A
    healthy idle worker is polled only to find out whether another worker's silence is a problem of the network, and
    once a day to delete old files.
    """
    found = []
    for worker in cluster.workers.values():
        if workers.is_backing_off(cluster, worker, now, session.limits):
            continue
        probe = _needs_probe(session, worker, now)
        stops = _ghost_stops(cluster, worker.id)
        is_healthy = worker.condition is WorkerCondition.HEALTHY
        reap = reaping.attempts_due(cluster, worker, now, session.limits, pause=reaping.PAUSE_WITHOUT_POLLS)
        if probe or worker.claims or stops or reap or not is_healthy:
            found.append(Poll(worker.id, probe, stops))
    witnesses = failure_detection.choose_witnesses(cluster, {poll.worker: None for poll in found})
    found += [Poll(worker, probe=False) for worker in witnesses]
    return sorted(
        found, key=lambda poll: cluster.workers[poll.worker].condition is not WorkerCondition.HEALTHY
    )


def _ghost_stops(cluster: Cluster, worker: WorkerId) -> tuple[tuple[Token, float], ...]:
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


def poll_call(
    session: Session,
    cluster: Cluster,
    read_at: ReadAt,
    poll: Poll,
    context: CallContext,
    open_requests: Sequence[Key] = (),
) -> Callable[[], answers.Observation]:
    """Return the function that makes the first call of a poll. The worker does not report `open_requests` again."""
    worker = cluster.workers[poll.worker]
    target = session.target(worker)
    if poll.probe:
        return partial(session.runner.probe, target, first_contact=True)
    if poll.stops:
        return partial(session.runner.stop, target, poll.stops)

    def poll_attempts() -> answers.Observation:
        renew = failure_detection.may_renew_leases(worker, session.age(read_at), session.limits)
        observation = session.runner.poll(
            target, list(context.attempts), renew=renew, open_requests=open_requests
        )
        return with_stack_places(session, cluster, target, context.attempts, observation)

    return poll_attempts


def next_poll(poll: Poll | None, answer: WorkerAnswer) -> Poll | None:
    """Return the remaining calls of a poll after the answer to one of its calls, or None.

    If the call belongs to no poll (`poll` is None), and the host has rebooted or can't write its files, return a poll.
    """
    if isinstance(answer.observation, Silence):
        return None
    if poll is None:
        probe = _could_not_prepare(answer)
        return Poll(answer.context.worker, probe=probe) if probe or has_rebooted(answer) else None
    if not (poll.probe or poll.stops):
        return None
    remaining = structs.replace(poll, probe=False, stops=poll.stops if poll.probe else ())
    return remaining if remaining.stops or answer.context.attempts else None


def _could_not_prepare(answer: WorkerAnswer) -> bool:
    """Return True if a worker made neither the directory of an attempt nor its tombstone, as on a read-only disk.

    It is also True while another invocation sends the attempt's workspace. A probe then finds out.
    """
    observation = answer.observation
    # The call neither prepared an attempt nor sent a workspace, or the workspace is sent next.
    if not isinstance(observation, WorkerReport) or bool(observation.lacking) == bool(answer.launching):
        return False
    known = answer.context.acknowledged
    return any(each.state is RemoteState.ABSENT and each.token not in known for each in observation.attempts)


def has_rebooted(answer: WorkerAnswer) -> bool:
    """Return True if the host rebooted, and its answer lacks attempts that ran before the reboot."""
    observation, identity = answer.observation, answer.context.identity
    if isinstance(observation, Silence) or identity is None:
        return False
    boot_id, incarnation = identity
    reports = observation.attempts if isinstance(observation, WorkerReport) else ()
    is_complete = {each.token for each in reports}.issuperset(answer.context.attempts)
    return incarnation == observation.incarnation and boot_id != observation.boot_id and not is_complete


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
    context = answer.context
    if isinstance(observation, Silence):
        is_launch = bool(answer.launching)
        sent_at = answer.called_at
        workers.record_silence(draft, observation, session.limits, sent_at=sent_at, launching=is_launch)
        if is_launch and observation.sent:
            _release_launches(draft, answer)
        if context.reaped and observation.sent:
            reaping.record_reaped(draft, context.worker, tuple(context.reaped.values()))
        return _NO_RESULT
    if isinstance(observation, answers.LogChunks | answers.WorkspaceFetch):
        return _NO_RESULT
    if answer.called_at is not None:
        workers.record_clock(draft, observation.worker, observation.clock, answer.called_at, answer.at)
    if isinstance(observation, ProbeReport):
        found = answers.worker_facts(session, draft.cluster, observation)
        identity.apply_probe(draft, found, session.limits)
        return _NO_RESULT
    if isinstance(observation, ReapReport):
        if (observation.boot_id, observation.incarnation) == context.identity:
            gone = {context.reaped[token] for token in observation.tokens}
            reaping.record_reaped(draft, context.worker, tuple(context.reaped.values()), gone)
        return _NO_RESULT
    if draft.cluster.workers[observation.worker].condition is WorkerCondition.UNTRUSTED:
        _release_launches(draft, answer)
        return _NO_RESULT  # only a probe restores trust
    if not identity.check_identity(draft, observation, session.limits):
        # After a reboot or with a new incarnation, a worker launches nothing.
        _release_launches(draft, answer)
        return _NO_RESULT
    return _record_report(session, draft, answer, observation)


def _release_launches(draft: Draft, answer: WorkerAnswer) -> None:
    """Let the next cycle dispatch the attempts that the call should have launched, because no answer confirms them."""
    live = [attempt_id for attempt_id, _ in draft.cluster.live_attempts_on(answer.context.worker)]
    attempts.release_dispatch(draft, (each for each in live if each in answer.launching))


def _record_report(
    session: Session, draft: Draft, answer: WorkerAnswer, observation: WorkerReport
) -> tuple[States, Outcomes]:
    """Record a worker's report on its attempts, and carry out or refuse their requests.

    Reports of live attempts are recorded before the requests, because a child job needs a running parent. Ends of
    attempts are recorded last.
    """
    identity.apply_ghost_reports(draft, observation.worker, observation.attempts)
    by_token = {attempt.token: name for name, attempt in draft.cluster.live_attempts_on(observation.worker)}
    waited = max(0.0, draft.at - answer.at)
    deferred = set(answer.deferred)

    def record_attempts(has_ended: bool) -> None:
        for report in observation.attempts:
            attempt_id = by_token.get(report.token)
            if attempt_id is None or (report.state in FINAL_STATES) is not has_ended:
                continue
            if report.state is RemoteState.ABSENT and report.token not in answer.context.acknowledged:
                continue  # the attempt may have been launched after the report
            attempt = draft.cluster.attempt(attempt_id)
            if has_ended and report.token in deferred and attempt.stop is None:
                continue  # the attempt's end is recorded after its remaining requests
            max_age = max(0.0, draft.at - attempt.assigned_at)
            report = _with_masked_tail(draft, attempt_id, _with_current_ages(report, waited, max_age))
            attempts.apply_report(draft, attempt_id, report, session.limits)

    record_attempts(has_ended=False)
    task_requests = (each for each in answer.requests if by_token.get(each.token) == each.attempt)
    outcomes = requests.decide_requests(session, draft, task_requests)
    # A request for a child job is carried out only after the workspace of the child job was fetched.
    deferred.update(token for (token, _), each in outcomes.items() if isinstance(each.result, Submit))
    record_attempts(has_ended=True)
    return {report.token: report.state for report in observation.attempts}, outcomes


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
