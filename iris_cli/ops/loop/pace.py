"""When the background loop runs its next cycle: soon after something has changed, seldom while nothing does."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from iris_cli.core.model.cluster import Cluster

SOON = 1.0
"""Seconds to the next cycle after one in which something started, ended or was submitted, or a task sent a request."""


class Pace(Struct):
    """`interval` is in seconds: the longest pause, and the usual one."""

    interval: float
    _pause: float = 0.0

    def pause(self, cluster: Cluster, now: float, *, changed: bool) -> float:
        """Seconds to the next cycle. Each pause is twice as long as the one before it, until something changes.

        `changed`: the log has grown, or a task sent a request: its next request may come soon. What is known to
        end at a certain time is looked at right then.
        """
        self._pause = min(SOON if changed else max(SOON, 2 * self._pause), self.interval)
        left = [at + SOON - now for at in _ends(cluster)]
        return min([self._pause, *(each for each in left if each > 0)])


def _ends(cluster: Cluster) -> Iterator[float]:
    """When time limits and graces of live attempts end."""
    for attempt_id, attempt in cluster.live_attempts():
        job = cluster.jobs[attempt_id.task.job]
        if attempt.stop is not None:
            yield attempt.stop.at + job.grace
        elif attempt.started_at is not None and job.timeout:
            yield attempt.started_at + job.timeout
