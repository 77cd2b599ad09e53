"""Which attempts workers are told to start (of a gang all ranks at once, or none), and which to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from iris_cli.core import Attempt, AttemptId, AttemptState, Cluster, EndReason, JobId, Limits, Token, WorkerId
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle import attempts
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.ops.cycle.observe import Answer

_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})

_MOST_GOES = 3  # in a cycle, to an attempt that stays as it is: a busy host may start it late
_ENOUGH_GOES = 3  # that were answered, in however many cycles: a `go` may take as long as one


class Readiness:
    """What workers said of each attempt in this cycle, and what may start for that. Answered `go`s are never reset."""

    def __init__(self) -> None:
        self.said: dict[Token, RemoteState] = {}
        self._goes: Counter[Token] = Counter()
        self._answered: Counter[Token] = Counter()
        self._gangs: dict[JobId, bool] = {}

    def begin(self, cluster: Cluster) -> None:
        """A new cycle: what was said before is old."""
        if self._answered:  # of those that are over nothing is counted any more
            live = {attempt.token for _, attempt in cluster.live_attempts()}
            self._answered = Counter({token: n for token, n in self._answered.items() if token in live})
        self.said.clear()
        self._goes.clear()
        self._gangs.clear()

    def look_again(self) -> None:
        """More was said, or decided: gangs that were not ready may be now."""
        self._gangs.clear()

    def is_prepared(self, attempt: Attempt) -> bool:
        """Whether it is set up, not told to start yet, or not often."""
        said = self.said.get(attempt.token)
        waits = attempt.state is AttemptState.ASSIGNED and said is RemoteState.PREPARED
        return waits and self._goes[attempt.token] < _MOST_GOES

    def is_ready(self, cluster: Cluster, job: JobId) -> bool:
        """Whether all ranks of a gang may start."""
        if job not in self._gangs:
            self._gangs[job] = is_ready(cluster, job, self.said)
        return self._gangs[job]

    def where_ready(self, cluster: Cluster, gangs: Iterable[JobId]) -> Iterator[WorkerId]:
        """The workers where ranks of these gangs may start: of those of which all ranks are set up by now."""
        self.look_again()
        for job in gangs:
            if self.is_ready(cluster, job):
                ranks = (attempt for _, attempt in cluster.live_of(job))
                yield from (rank.worker for rank in ranks if self.is_prepared(rank))

    def told_to_start(self, tokens: Iterable[Token]) -> None:
        """A `go` is sent to these."""
        for token in tokens:
            self.said[token] = RemoteState.LAUNCHING
            self._goes[token] += 1

    def was_told(self, tokens: Iterable[Token]) -> None:
        """The worker has answered to a `go`."""
        self._answered.update(tokens)

    def give_up(
        self,
        draft: Draft,
        report: WorkerReport,
        believed: Mapping[Token, RemoteState],
        limits: Limits,
    ) -> list[JobId]:
        """Fence what a worker answers to be set up still, long after it was first told to start it, and told again.

        `believed` is what its answer was taken for. Returns the jobs that this is about.
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
            attempts.held_up(draft, attempt_id, limits)
        return [attempt_id.task.job for attempt_id in held_up]


def _is_late(draft: Draft, attempt: Attempt, told_ago: float | None, limits: Limits) -> bool:
    """Whether a start that does not come about has had its time. A busy host may take long over its first steps.

    How long the attempt had to wait for the others of its gang before is nobody's fault: only where the worker could
    not note when it was told to start it, that is counted, too.
    """
    if told_ago is None:
        return not 0 <= draft.at - attempt.assigned_at < limits.dispatch_lease
    return told_ago >= limits.dispatch_lease


def is_ready(cluster: Cluster, job: JobId, known: Mapping[Token, RemoteState]) -> bool:
    """Whether every rank is set up, or beyond that and not ended badly: only then may any of them start."""
    for task in cluster.tasks_of(job):
        attempt = task.attempts[-1]
        ended_well = attempt.end is not None and attempt.end.reason is EndReason.OK
        set_up = attempt.state is AttemptState.ASSIGNED and known.get(attempt.token) in _SET_UP
        if not (ended_well or set_up or attempt.state is AttemptState.RUNNING):
            return False
    return True


_ALIVE = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.ORPHANED})


class Strays:
    """Attempts that are to be stopped though nothing in the log asks for it; with graces in seconds."""

    def __init__(self) -> None:
        self._found: dict[WorkerId, dict[Token, float]] = {}

    def find(self, cluster: Cluster, answers: Iterable[Answer]) -> None:
        """A late outcome changes nothing, but if it says that something runs, that is stopped."""
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
        """Those of one worker, which are being dealt with from now on."""
        return self._found.pop(worker, {})


def attempt_of(cluster: Cluster, attempt_id: AttemptId) -> Attempt | None:
    """The attempt, if there is such a one."""
    try:
        return cluster.attempt(attempt_id)
    except KeyError:
        return None


def stop_order(cluster: Cluster, attempt_id: AttemptId, attempt: Attempt) -> tuple[Token, float]:
    """What to tell the worker of an attempt that the log asks to stop: with its grace in seconds."""
    assert attempt.stop is not None
    job = cluster.jobs[attempt_id.task.job]
    return attempt.token, 0.0 if attempt.stop.reason is EndReason.DISPATCH_FAILED else job.grace
