"""Deletion of the files of ended attempts on their workers. Their exit records remain, on the worker and in the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile

from iris_cli.core import AttemptId, Cluster, Limits, Worker, WorkerCondition, WorkerId
from iris_cli.core.events.events import AttemptsReaped
from iris_cli.core.evolve import Draft

FLATTENED = 3600.0  # seconds between two calls to a worker that is called anyway
ALONE = 86400.0  # seconds between two calls to a worker that is connected only for them


def due(
    cluster: Cluster, worker: Worker, now: float, limits: Limits, *, pause: float = FLATTENED
) -> tuple[AttemptId, ...]:
    """Return the attempts to reap now, at most a batch of the oldest; none within `pause` seconds of the last call."""
    outputs = cluster.outputs.get(worker.id)
    if outputs is None or not limits.reap_after or worker.condition is not WorkerCondition.HEALTHY:
        return ()
    if outputs.asked_at is not None and 0 <= now - outputs.asked_at < pause:
        return ()
    latest = now - limits.reap_after - abs(worker.skew)
    return tuple(takewhile(lambda attempt: _ended_at(cluster, attempt) <= latest, outputs.first))


def ended_before(cluster: Cluster, worker: Worker, latest: float) -> tuple[AttemptId, ...]:
    """Return the attempts that were proven to end by `latest` and still have files, the oldest first."""
    outputs = cluster.outputs.get(worker.id)
    if outputs is None:
        return ()
    latest -= abs(worker.skew)
    return tuple(each for each in outputs.attempts if _ended_at(cluster, each) <= latest)


def told(
    draft: Draft, worker: WorkerId, asked: Sequence[AttemptId], reaped: Collection[AttemptId] = ()
) -> None:
    """Record which attempts have no files left, unless another call did; the others are retried later."""
    outputs = draft.cluster.outputs.get(worker)
    known = set(asked)
    first = tuple(takewhile(known.__contains__, outputs.first)) if outputs is not None else ()
    if first:
        gone = tuple(attempt for attempt in first if attempt in reaped)
        left = tuple(attempt for attempt in first if attempt not in reaped)
        draft.record(AttemptsReaped(worker=worker, attempts=gone, left=left))


def _ended_at(cluster: Cluster, attempt_id: AttemptId) -> float:
    ended_at = cluster.attempt(attempt_id).ended_at
    assert ended_at is not None
    return ended_at
