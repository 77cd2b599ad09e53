"""What runs on workers although it is over by the log: an outcome that came too late."""

from __future__ import annotations

from collections.abc import Iterable

from iris_cli.core.ids import AttemptId, Token, WorkerId
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.task import Attempt, EndReason
from iris_cli.ops.cycle.observe import Answer

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
