"""Whether a gang may start: all its ranks at once, or none."""

from __future__ import annotations

from collections.abc import Mapping

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId, Token
from iris_cli.core.observations import RemoteState
from iris_cli.core.outcome import EndReason
from iris_cli.core.task import AttemptState

_SET_UP = frozenset({RemoteState.PREPARED, RemoteState.LAUNCHING})


def is_ready(cluster: Cluster, job: JobId, known: Mapping[Token, RemoteState]) -> bool:
    """Whether every rank is set up, or beyond that and not ended badly: only then may any of them start."""
    for task in cluster.tasks_of(job):
        attempt = task.attempts[-1]
        ended_well = attempt.end is not None and attempt.end.reason is EndReason.OK
        set_up = attempt.state is AttemptState.ASSIGNED and known.get(attempt.token) in _SET_UP
        if not (ended_well or set_up or attempt.state is AttemptState.RUNNING):
            return False
    return True
