"""Start attempts on their workers: send workspaces, prepare attempts, and let prepared attempts go.

The ranks of a gang start together or not at all. Launching is idempotent for each token. If an invocation dies, another
invocation can dispatch the same attempts again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from iris_cli.core import AttemptId, AttemptState, Cluster, Job, JobId, Limits, Token, Worker, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.core.model.task import Attempt, EndReason
from iris_cli.errors import IrisError
from iris_cli.ops.cycle import answers, environment, observe, transfers
from iris_cli.ops.cycle.calls import Call
from iris_cli.ops.secret_values import MissingSecretError, secret_values
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.launch_request import LaunchRequest

Item = tuple[AttemptId, Attempt]

_UNPREPARED = frozenset({RemoteState.ABSENT, RemoteState.PREPARING})
"""States of an attempt that must be prepared, because it has no files yet or its preparation may be incomplete."""
_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})
_MAX_GOES = 3  # maximum `go` calls per cycle to an attempt that stays PREPARED on a busy host
_MIN_ANSWERED_GOES = 3  # answered `go` calls, of all cycles, before a PREPARED attempt is fenced


class Launches:
    """The attempts that one invocation starts. Each attempt is prepared once per cycle."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.readiness = Readiness()
        self.shipping = transfers.Shipping(session)
        self._was_shipped = False  # True if a workspace was sent since the last decision
        self._unsent: set[Token] = set()  # attempts assigned by this invocation and not sent yet
        self._sent: set[Token] = set()  # attempts sent in this cycle
        # Attempts that could not be sent, each with the reason. The log does not record them yet.
        self.not_sent: dict[Token, tuple[AttemptId, str]] = {}

    def begin(self, cluster: Cluster) -> list[WorkerId]:
        """Begin a new cycle, in which each attempt may be sent again. Return the workers of the unsent attempts."""
        self.readiness.begin(cluster)
        self.shipping.begin()
        self._sent.clear()
        unsent = [
            attempt
            for _, attempt in (cluster.live_attempts() if self._unsent else ())
            if attempt.token in self._unsent
            and attempt.state is AttemptState.ASSIGNED
            and not attempt.taken_over
        ]
        self._unsent = {attempt.token for attempt in unsent}
        return [attempt.worker for attempt in unsent]

    def add(self, attempt: Attempt) -> None:
        """Add an attempt that this invocation has just assigned."""
        self._unsent.add(attempt.token)

    def release(self, open_calls: Iterable[Call]) -> None:
        """Let other invocations dispatch the attempts that this one did not start, before the dispatch lease expires.

        These are the unsent attempts and the attempts of the open calls.
        """
        launching = {attempt_id for call in open_calls for attempt_id in call.launching}

        def rule(draft: Draft) -> None:
            live = draft.cluster.live_attempts()
            unstarted = [each for each, attempt in live if each in launching or attempt.token in self._unsent]
            attempts.release_dispatch(draft, unstarted)

        if launching or self._unsent:
            with suppress(IrisError):
                self._session.decide(rule)

    def next_call(self, cluster: Cluster, worker: Worker) -> Call | None:
        """Return the next call that prepares or starts attempts on the worker, or None."""
        direct: list[Item] = []
        staged: list[Item] = []
        ready: list[Token] = []
        for attempt_id, attempt in cluster.live_attempts_on(worker.id):
            job = cluster.jobs[attempt_id.task.job]
            if attempt.state is not AttemptState.ASSIGNED or self.shipping.must_wait(worker.id, job):
                continue
            if self.readiness.is_prepared(attempt):
                ready += [attempt.token] if self._may_go(cluster, job) else []
            elif self._must_prepare(attempt):
                needs_two_calls = job.is_gang or job.has_set_up or job.client
                (staged if needs_two_calls else direct).append((attempt_id, attempt))
        return (
            self._prepare_call(cluster, worker, direct, go=True)
            or self._prepare_call(cluster, worker, staged, go=False)
            or self._go_call(cluster, worker, ready)
        )

    def _may_go(self, cluster: Cluster, job: Job) -> bool:
        """Return True if prepared attempts of the job may start. Only its client starts an interactive task."""
        return not job.client and (not job.is_gang or self.readiness.is_ready(cluster, job.id))

    def _must_prepare(self, attempt: Attempt) -> bool:
        """Return True if this invocation has not sent the attempt yet, or must send the attempt again in this cycle."""
        if attempt.token in self._unsent:
            return True
        was_sent = attempt.taken_over or attempt.acknowledged
        is_unprepared = self.readiness.states.get(attempt.token) in _UNPREPARED
        return was_sent and is_unprepared and attempt.token not in self._sent

    def _prepare_call(self, cluster: Cluster, worker: Worker, items: list[Item], *, go: bool) -> Call | None:
        requests = self._requests(cluster, items)
        if not requests:
            return None
        act = partial(
            self._session.runner.prepare,
            self._session.target(worker),
            list(requests.values()),
            go=go,
            boot_id=worker.boot_id,
            incarnation=worker.incarnation,
        )
        return Call(context=observe.call_context(cluster, worker.id), act=act, starts=tuple(requests))

    def _requests(self, cluster: Cluster, items: list[Item]) -> "dict[AttemptId, LaunchRequest]":
        """Return the requests of the attempts that this invocation may send now."""
        requests = {}
        for attempt_id, attempt in items:
            self._sent.add(attempt.token)
            self._unsent.discard(attempt.token)
            if self._has_expired(attempt):
                continue  # this process was suspended, and another invocation may have taken over the attempt
            try:
                requests[attempt_id] = _launch_request(self._session, cluster, attempt_id)
            except MissingSecretError:
                continue  # an invocation that has the secret will start it
            except ValueError as error:
                self.not_sent[attempt.token] = (attempt_id, f"can't send it: {error}")
        return requests

    def _go_call(self, cluster: Cluster, worker: Worker, ready: list[Token]) -> Call | None:
        if not ready:
            return None
        self.readiness.record_go(ready)
        runner, target = self._session.runner, self._session.target(worker)
        act = partial(runner.go, target, ready, boot_id=worker.boot_id, incarnation=worker.incarnation)
        return Call(context=observe.call_context(cluster, worker.id), act=act, goes=tuple(ready))

    def _has_expired(self, attempt: Attempt) -> bool:
        """Return True if the attempt's dispatch lease has expired, so that another invocation may dispatch it."""
        lease = self._session.limits.dispatch_lease
        is_late = not 0 <= self._session.clock.now() - attempt.assigned_at < lease
        return is_late and not attempt.taken_over and not attempt.acknowledged

    def give_up(self, cluster: Cluster, worker: WorkerId, why: str) -> None:
        """Mark the unsent attempts of an unreachable worker as failed to send."""
        for attempt_id, attempt in cluster.live_attempts_on(worker):
            self._fail_unsent(attempt.token, attempt_id, why)

    def _fail_unsent(self, token: Token, attempt_id: AttemptId, why: str) -> None:
        if token in self._unsent:
            self._unsent.discard(token)
            self.not_sent[token] = (attempt_id, why)

    def finish_call(self, cluster: Cluster, call: Call, observation: answers.Observation) -> None:
        """Note which attempts of a call were not sent, and queue again those whose workspace the worker lacks."""
        if isinstance(observation, Silence):
            unsent = call.context.attempts if not observation.sent else {}
            starts = {token: each for token, each in unsent.items() if each in call.starts}
            self.not_sent |= {token: (each, observation.problem) for token, each in starts.items()}
            return
        self.readiness.answered.update(call.goes)
        if isinstance(observation, WorkerReport) and observation.lacking:
            for token, attempt_id in self.shipping.record_missing(cluster, call, observation).items():
                attempt = cluster.find_attempt(attempt_id, token)
                if attempt is not None and not (attempt.taken_over or self._has_expired(attempt)):
                    self._unsent.add(token)

    def finish_shipment(self, call: Call, observation: answers.Observation) -> None:
        """Allow `prepare` for the attempts that waited for the workspace. After a failed transfer, note the reason."""
        self._was_shipped = True
        for token, attempt_id in self.shipping.end_shipment(call, observation).items():
            self._sent.discard(token)
            if isinstance(observation, Silence):
                self._fail_unsent(token, attempt_id, observation.problem)

    def record(self, draft: Draft) -> dict[JobId, None]:
        """Record the attempts that were not sent and whose dispatch lease has not expired. Return their jobs."""
        jobs: dict[JobId, None] = {}
        for token, (attempt_id, why) in self.not_sent.items():
            attempt = draft.cluster.find_attempt(attempt_id, token)
            if attempt is not None and not self._has_expired(attempt):
                attempts.record_not_sent(draft, attempt_id, why)
                jobs[attempt_id.task.job] = None
        if self._was_shipped:  # the transfer may have taken longer than the dispatch lease
            attempts.take_over(draft, self._session.limits)
        return jobs

    def end_record(self, states: Mapping[Token, RemoteState]) -> None:
        """Note that the log has the results of `record`, and the states that the workers have reported."""
        self.readiness.states |= states
        self.not_sent.clear()
        self._was_shipped = False


class Readiness:
    """The states of attempts that were reported in this cycle, and the number of `go` calls to each attempt."""

    def __init__(self) -> None:
        self.states: dict[Token, RemoteState] = {}
        self._goes: Counter[Token] = Counter()
        self.answered: Counter[Token] = Counter()  # answered `go` calls, in all cycles
        self._gangs: dict[JobId, bool] = {}

    def begin(self, cluster: Cluster) -> None:
        """Begin a new cycle: discard the reports of the last cycle."""
        if self.answered:  # discard the counts of ended attempts
            live = {attempt.token for _, attempt in cluster.live_attempts()}
            self.answered = Counter({token: n for token, n in self.answered.items() if token in live})
        self.states.clear()
        self._goes.clear()
        self._gangs.clear()

    def recheck_gangs(self) -> None:
        """Forget which gangs were ready, so that they are checked again after new reports or decisions."""
        self._gangs.clear()

    def is_prepared(self, attempt: Attempt) -> bool:
        """Return True if the attempt is prepared and may get another `go` call in this cycle."""
        state = self.states.get(attempt.token)
        is_waiting = attempt.state is AttemptState.ASSIGNED and state is RemoteState.PREPARED
        return is_waiting and self._goes[attempt.token] < _MAX_GOES

    def is_ready(self, cluster: Cluster, job: JobId) -> bool:
        """Return True if the ranks of a gang may start. The result is cached until `recheck_gangs`."""
        if job not in self._gangs:
            self._gangs[job] = all_ranks_ready(cluster, job, self.states)
        return self._gangs[job]

    def workers_to_start(self, cluster: Cluster, jobs: Iterable[JobId]) -> Iterator[WorkerId]:
        """Yield the workers of the prepared ranks of those jobs that are gangs whose ranks may start."""
        self.recheck_gangs()
        for job_id in jobs:
            job = cluster.jobs.get(job_id)
            if job is not None and job.is_gang and self.is_ready(cluster, job_id):
                ranks = (attempt for _, attempt in cluster.live_attempts_of(job_id))
                yield from (rank.worker for rank in ranks if self.is_prepared(rank))

    def record_go(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            self.states[token] = RemoteState.LAUNCHING
            self._goes[token] += 1

    def fence_late(
        self,
        draft: Draft,
        report: WorkerReport,
        states: Mapping[Token, RemoteState],
        limits: Limits,
    ) -> list[JobId]:
        """Fence attempts that are PREPARED long after their first `go` call, although several `go` calls were answered.

        `states` are the validated states of the report. Return the jobs of the fenced attempts.
        """
        live = draft.cluster.live_attempts_on(report.worker) if report.worker in draft.cluster.workers else ()
        ages = {each.token: each.started_ago for each in report.attempts}
        late = [
            attempt_id
            for attempt_id, attempt in live
            if self.answered[attempt.token] >= _MIN_ANSWERED_GOES
            and states.get(attempt.token) is RemoteState.PREPARED
            and attempt.state is AttemptState.ASSIGNED
            and _is_late(draft, attempt, ages.get(attempt.token), limits)
        ]
        for attempt_id in late:
            attempts.fence_held_up(draft, attempt_id, limits)
        return [attempt_id.task.job for attempt_id in late]


def _is_late(draft: Draft, attempt: Attempt, go_age: float | None, limits: Limits) -> bool:
    """Return True if a prepared attempt has had enough time to start, even on a busy host.

    `go_age` is the age of the first `go` call in seconds. It is None if the worker could not record the time of that
    call. Then the time since the assignment is used, which includes the wait for other ranks.
    """
    if go_age is None:
        return not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease
    return go_age >= limits.dispatch_lease


def all_ranks_ready(cluster: Cluster, job: JobId, states: Mapping[Token, RemoteState]) -> bool:
    """Return True if every rank of a gang is set up, is running or has succeeded. Before that, no rank may start."""
    for task in cluster.tasks_of(job):
        attempt = task.attempts[-1]
        has_succeeded = attempt.end is not None and attempt.end.reason is EndReason.OK
        is_set_up = attempt.state is AttemptState.ASSIGNED and states.get(attempt.token) in _SET_UP
        if not (has_succeeded or is_set_up or attempt.state is AttemptState.RUNNING):
            return False
    return True


def _launch_request(session: Session, cluster: Cluster, attempt_id: AttemptId) -> "LaunchRequest":
    """Return the launch request of an attempt. Raises MissingSecretError, or ValueError if the request is invalid."""
    from iris_cli.remote.launch_request import LaunchRequest, command_text, environment_text

    placement = environment.placement_of(cluster, attempt_id)
    job, attempt = placement.job, placement.attempt
    default_env, secrets = session.default_env(placement.worker), secret_values(job)
    line = environment.read_line(session.state, job, placement.index)
    own_port = (
        (environment.coordinator_port(placement),) if environment.needs_coordinator_port(placement) else ()
    )
    request = LaunchRequest(
        token=attempt.token,
        argv=job.command,
        env={
            **environment.environment(placement, default_env, secrets),
            **environment.array_variables(placement, line),
        },
        workspace=job.workspace.hash if job.workspace is not None else "",
        setup=job.setup,
        setup_timeout=job.setup_timeout,
        timeout=job.timeout,
        signal=job.signal,
        lease=job.lease,
        grace=job.grace,
        memory=job.resources.memory if job.memory_limit else 0,
        exclusive=placement.on_tpu,
        ports=(*own_port, *attempt.ports),
        device_wait=session.limits.device_wait,
        image=job.image,
        gpus=bool(attempt.gpus),
    )
    command_text(request), environment_text(request)  # both raise ValueError for an invalid request
    return request
