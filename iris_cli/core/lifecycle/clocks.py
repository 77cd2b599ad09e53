"""How far the clocks of workers are from ours. No order is taken from it, for ends are told as "so long ago".

But when it changes, one of the clocks was set, and what was noted by ours before can't be compared any more.
"""

from __future__ import annotations

from iris_cli.core.events.events import WorkerSkewChanged
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import WorkerId

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
        skew = float(round(min(max(0.0, least), most)))
        draft.record(WorkerSkewChanged(worker=worker_id, skew=skew))
