"""Start and stop orders for workers. The ranks of a gang start together or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from iris_cli.core import Attempt, AttemptId, AttemptState, Cluster, EndReason, JobId, Limits, Token, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.ops.cycle.observe import Answer

_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})

_MOST_GOES = 3  # per cycle, to an attempt that stays PREPARED: a busy host may start it late
_ENOUGH_GOES = 3  # answered ones over any number of cycles: one `go` may take a whole cycle


class Readiness:
    """Reported attempt states of this cycle, and `go` counts. Answered `go`s are counted across cycles."""

    def __init__(self) -> None:
        self.said: dict[Token, RemoteState] = {}
        self._goes: Counter[Token] = Counter()
        self._answered: Counter[Token] = Counter()
        self._gangs: dict[JobId, bool] = {}

    def begin(self, cluster: Cluster) -> None:
        """Begin a new cycle: discard the reports of the last one."""
        if self._answered:  # drop the counts of ended attempts
            live = {attempt.token for _, attempt in cluster.live_attempts()}
            self._answered = Counter({token: n for token, n in self._answered.items() if token in live})
        self.said.clear()
        self._goes.clear()
        self._gangs.clear()

    def look_again(self) -> None:
        """Check all gangs again after new reports or decisions."""
        self._gangs.clear()

    def is_prepared(self, attempt: Attempt) -> bool:
        """Return True if the attempt is prepared and was told to start fewer than _MOST_GOES times in this cycle."""
        said = self.said.get(attempt.token)
        waits = attempt.state is AttemptState.ASSIGNED and said is RemoteState.PREPARED
        return waits and self._goes[attempt.token] < _MOST_GOES

    def is_ready(self, cluster: Cluster, job: JobId) -> bool:
        """Return True if all ranks of a gang may start."""
        if job not in self._gangs:
            self._gangs[job] = is_ready(cluster, job, self.said)
        return self._gangs[job]

    def where_ready(self, cluster: Cluster, gangs: Iterable[JobId]) -> Iterator[WorkerId]:
        """Yield the workers of prepared ranks, for those of these gangs whose ranks are all set up."""
        self.look_again()
        for job in gangs:
            if self.is_ready(cluster, job):
                ranks = (attempt for _, attempt in cluster.live_of(job))
                yield from (rank.worker for rank in ranks if self.is_prepared(rank))

    def told_to_start(self, tokens: Iterable[Token]) -> None:
        """Record that a `go` is being sent to these attempts."""
        for token in tokens:
            self.said[token] = RemoteState.LAUNCHING
            self._goes[token] += 1

    def was_told(self, tokens: Iterable[Token]) -> None:
        """Record that the worker has answered a `go`."""
        self._answered.update(tokens)

    def give_up(
        self,
        draft: Draft,
        report: WorkerReport,
        believed: Mapping[Token, RemoteState],
        limits: Limits,
    ) -> list[JobId]:
        """Fence attempts still reported as PREPARED long after the first `go` and after repeated ones.

        `believed` are the validated states of the report. Returns the jobs of the fenced attempts.
        """
        live = draft.cluster.live_on(report.worker) if report.worker in draft.cluster.workers else ()
        told = {each.token: each.started_ago for each in report.attempts}
        held_up = [
            attempt_id
            for attempt_id, attempt in live
            if self._answered[attempt.token] >= _ENOUGH_GOES
            and believed.get(attempt.token) is RemoteState.PREPARED
            and attempt.state is AttemptState.ASSIGNED
            and _is_late(draft, attempt, told.get(attempt.token), limits)
        ]
        for attempt_id in held_up:
            attempts.fence_held_up(draft, attempt_id, limits)
        return [attempt_id.task.job for attempt_id in held_up]


def _is_late(draft: Draft, attempt: Attempt, told_ago: float | None, limits: Limits) -> bool:
    """Return True if a prepared attempt has had enough time to start. A busy host may need long.

    Time spent waiting for other ranks of its gang does not count, unless the worker could not record when it
    was told to start.
    """
    if told_ago is None:
        return not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease
    return told_ago >= limits.dispatch_lease


def is_ready(cluster: Cluster, job: JobId, known: Mapping[Token, RemoteState]) -> bool:
    """Return True if every rank is set up, running or succeeded: only then may any rank start."""
    for task in cluster.tasks_of(job):
        attempt = task.attempts[-1]
        ended_well = attempt.end is not None and attempt.end.reason is EndReason.OK
        set_up = attempt.state is AttemptState.ASSIGNED and known.get(attempt.token) in _SET_UP
        if not (ended_well or set_up or attempt.state is AttemptState.RUNNING):
            return False
    return True


_ALIVE = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.ORPHANED})


class Strays:
    """Stale attempts: alive on a worker, ended in the log; to be stopped, each with its grace in seconds."""

    def __init__(self) -> None:
        self._found: dict[WorkerId, dict[Token, float]] = {}

    def find(self, cluster: Cluster, answers: Iterable[Answer]) -> None:
        """Find attempts that ended in the log but are reported alive. Their late outcome changes nothing else."""
        for answer in answers:
            reports = answer.seen.attempts if isinstance(answer.seen, WorkerReport) else ()
            for report in reports:
                attempt_id = answer.known.attempts.get(report.token)
                attempt = attempt_of(cluster, attempt_id) if attempt_id is not None else None
                if attempt_id is None or attempt is None or attempt.live or attempt.token != report.token:
                    continue
                if report.state in _ALIVE:
                    grace = cluster.jobs[attempt_id.task.job].grace
                    self._found.setdefault(answer.known.worker, {})[report.token] = grace

    def take(self, worker: WorkerId) -> dict[Token, float]:
        """Return and remove the stale attempts of one worker."""
        return self._found.pop(worker, {})


def attempt_of(cluster: Cluster, attempt_id: AttemptId) -> Attempt | None:
    """Return the attempt, or None if it does not exist."""
    try:
        return cluster.attempt(attempt_id)
    except KeyError:
        return None


def stop_order(cluster: Cluster, attempt_id: AttemptId, attempt: Attempt) -> tuple[Token, float]:
    """Return the token and the grace in seconds for an attempt that the log asks to stop."""
    assert attempt.stop is not None
    job = cluster.jobs[attempt_id.task.job]
    return attempt.token, 0.0 if attempt.stop.reason is EndReason.DISPATCH_FAILED else job.grace
