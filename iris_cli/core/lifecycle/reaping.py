"""Delete the files of ended attempts on their workers. The exit records remain, on the worker and in the log."""

from collections.abc import Collection, Sequence
from itertools import takewhile

from iris_cli.core import AttemptId, Cluster, Limits, Worker, WorkerCondition, WorkerId
from iris_cli.core.events.events import AttemptsReaped
from iris_cli.core.evolve import Draft

PAUSE = 3600.0  # seconds between two calls that delete files, for a worker that is polled anyway
PAUSE_WITHOUT_POLLS = 86400.0  # seconds between two such calls to a worker that is not polled


def attempts_due(
    cluster: Cluster, worker: Worker, now: float, limits: Limits, *, pause: float = PAUSE
) -> tuple[AttemptId, ...]:
    """Return the attempts whose files iris must delete now, oldest first; none within `pause` of the last call."""
    outputs = cluster.outputs.get(worker.id)
    if outputs is None or not limits.reap_after or worker.condition is not WorkerCondition.HEALTHY:
        return ()
    if outputs.asked_at is not None and 0 <= now - outputs.asked_at < pause:
        return ()
    latest = now - limits.reap_after - abs(worker.skew)
    later = outputs.full[1] if len(outputs.full) > 1 else outputs.last if outputs.full else ()
    return _ended_by(cluster, outputs.oldest_batch, latest, now, later)


def attempts_ended_before(
    cluster: Cluster, worker: Worker, latest: float, now: float
) -> tuple[AttemptId, ...]:
    """Return the attempts that ended by `latest` and still have files on the worker, oldest first."""
    outputs = cluster.outputs.get(worker.id)
    if outputs is None:
        return ()
    return _ended_by(cluster, outputs.attempts, latest - abs(worker.skew), now)


def record_reaped(
    draft: Draft, worker: WorkerId, requested: Sequence[AttemptId], reaped: Collection[AttemptId] = ()
) -> None:
    """Record that the files of `reaped` are deleted. All other requested attempts are reaped later."""
    outputs = draft.cluster.outputs.get(worker)
    requested_set = set(requested)
    oldest = tuple(takewhile(requested_set.__contains__, outputs.oldest_batch)) if outputs is not None else ()
    if oldest:
        deleted = tuple(attempt for attempt in oldest if attempt in reaped)
        left = tuple(attempt for attempt in oldest if attempt not in reaped)
        draft.record(AttemptsReaped(worker=worker, attempts=deleted, left=left))


def _ended_by(
    cluster: Cluster,
    attempts: Sequence[AttemptId],
    latest: float,
    now: float,
    later: Sequence[AttemptId] = (),
) -> tuple[AttemptId, ...]:
    """Return the attempts before the first one that ended after `latest`. They are in the order of their ends.

    A clock that was ahead recorded each end after `now`. Such an attempt ended before the next one, so it must not
    keep the files of all later attempts. `later`: the attempts that follow.
    """
    found: list[AttemptId] = []
    doubtful: list[AttemptId] = []
    for attempt in attempts:
        ended_at = _ended_at(cluster, attempt)
        if ended_at > now:
            doubtful.append(attempt)
        elif ended_at > latest:
            return tuple(found)
        else:
            found += [*doubtful, attempt]
            doubtful = []
    if doubtful and later and _ended_at(cluster, later[0]) <= latest:
        found += doubtful
    return tuple(found)


def _ended_at(cluster: Cluster, attempt_id: AttemptId) -> float:
    ended_at = cluster.attempt(attempt_id).ended_at
    assert ended_at is not None
    return ended_at
