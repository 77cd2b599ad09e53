"""How far the clocks of workers are from ours. No order is taken from it, for ends are told as "so long ago".

But when it changes, one of the clocks was set, and what was noted by ours before can't be compared any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_cli.core.ids import WorkerId
from iris_cli.core.limits import Limits
from iris_cli.core.worker import Worker

if TYPE_CHECKING:
    from iris_cli.core.evolve import Draft

MOST_SKEW = 30.0
"""Seconds of skew that are worth a word."""

_MATERIAL = 5.0
_RESOLUTION = 1.0  # workers tell whole seconds


def told(draft: Draft, worker_id: WorkerId, clock: float, asked_at: float, heard_at: float) -> None:
    """A worker told its time, somewhere between the question and the answer; recorded if it is news.

    Only what lies outside of that time is certain. A clock of 0 is one that wasn't told.
    """
    if not clock or worker_id not in draft.cluster.workers:
        return
    least, most = clock - heard_at, clock + _RESOLUTION - asked_at
    known = draft.cluster.workers[worker_id].skew
    if not least - _MATERIAL <= known <= most + _MATERIAL:
        from iris_cli.core.events import WorkerSkewChanged  # not for who only looks at clocks

        skew = float(round(min(max(0.0, least), most)))
        draft.record(WorkerSkewChanged(worker=worker_id, skew=skew))


def is_wrong(worker: Worker) -> bool:
    """Whether one of the two clocks needs to be set."""
    return abs(worker.skew) > MOST_SKEW


def cooling(worker: Worker, now: float, limits: Limits) -> bool:
    """Whether the worker takes nothing new for a while. A wait longer than the longest back-off counts as over."""
    return 0 < worker.cooldown_until - now <= limits.backoff_max
