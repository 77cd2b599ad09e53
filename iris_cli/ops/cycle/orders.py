"""Start and stop orders for workers. The ranks of a gang start together or not at all."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from iris_cli.core import Attempt, AttemptId, AttemptState, Cluster, EndReason, JobId, Limits, Token, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.ops.cycle.observe import WorkerAnswer

_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})

_MAX_GOES = 3  # maximum `go` calls per cycle to an attempt that stays PREPARED on a busy host
_MIN_ANSWERED_GOES = 3  # answered `go` calls, of all cycles, before a PREPARED attempt is fenced
_ALIVE = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.ORPHANED})


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


def stale_attempts(
    cluster: Cluster, answers: Iterable[WorkerAnswer]
) -> Iterator[tuple[WorkerId, Token, float]]:
    """Yield the attempts that ended in the log but are alive on a worker: worker, token, grace period in seconds."""
    for answer in answers:
        reports = answer.observation.attempts if isinstance(answer.observation, WorkerReport) else ()
        for report in reports:
            attempt_id = answer.context.attempts.get(report.token)
            if attempt_id is None or report.state not in _ALIVE:
                continue
            attempt = cluster.find_attempt(attempt_id, report.token)
            if attempt is not None and not attempt.live:
                yield answer.context.worker, report.token, cluster.jobs[attempt_id.task.job].grace


def stop_order(cluster: Cluster, attempt_id: AttemptId, attempt: Attempt) -> tuple[Token, float]:
    """Return the token and the grace period in seconds for an attempt that must be stopped according to the log."""
    assert attempt.stop is not None
    job = cluster.jobs[attempt_id.task.job]
    return attempt.token, 0.0 if attempt.stop.reason is EndReason.DISPATCH_FAILED else job.grace
