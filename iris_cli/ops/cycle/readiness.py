"""Which attempts may be told to start: of a gang all ranks at once, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId, Token, WorkerId
from iris_cli.core.lifecycle import attempts
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.task import Attempt, AttemptState, EndReason

_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})

_MOST_GOES = 3  # in a cycle, to an attempt that stays as it is: a busy host may start it late
_ENOUGH_GOES = 3  # that were answered, in however many cycles: a `go` may take as long as one


class Readiness:
    """What workers said of each attempt in one cycle of an invocation, and what may start for that.

    How often a worker has answered that it was told to start an attempt is counted over all cycles.
    """

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
