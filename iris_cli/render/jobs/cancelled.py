"""What became of a cancellation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from iris_cli.core.ids import AttemptId, JobId, WorkerId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobState
from iris_cli.core.units import count
from iris_cli.ops.jobs.cancel import Cancelled
from iris_cli.ops.views.cycles import Cycles
from iris_cli.render.console import Output
from iris_cli.render.fold import fold


class CancelledDocument(Struct, frozen=True):
    """The result of `iris cancel`. `over`: jobs that had ended before, and how.

    `stopping`: attempts that are not proven gone, and their workers.
    """

    cancelled: Sequence[JobId]
    over: Mapping[JobId, JobState]
    stopping: Mapping[AttemptId, WorkerId]
    cycles: Cycles | None


def show(
    output: Output,
    cluster: Cluster,
    result: Cancelled,
    *,
    waited: bool = False,
    no_cycles: str = "",
    cycles: Cycles | None = None,
) -> None:
    """The cancelled jobs; beside them those that were over before, and what is still being stopped.

    `waited`: what is still being stopped is so in spite of a wait. `no_cycles` says what to type if no cycle follows;
    `cycles` says who runs them, for the document.
    """
    stopping = {attempt: cluster.attempt(attempt).worker for attempt in result.stopping}
    if output.as_json:
        over = {job: cluster.job_state(job) for job in result.over}
        output.document(CancelledDocument(result.cancelled, over, stopping, cycles))
        return
    for job in result.cancelled:
        output.done(f"cancelled {job}")
    for job in result.over:
        output.message(f"{job} was over already: {cluster.job_state(job).value}")
    if stopping:
        tell = output.warning if waited else output.message
        tell(_still(stopping.values(), waited=waited, no_cycles=no_cycles))


def _still(hosts: Collection[WorkerId], *, waited: bool, no_cycles: str) -> str:
    are = f"{count(len(hosts), 'attempt')} {'is' if len(hosts) == 1 else 'are'}"
    on = fold(dict.fromkeys(hosts))
    if waited:
        then = no_cycles or "every cycle tries again: iris workers"
        return f"{are} not proven gone on {on}, silent or unable to end it; {then}"
    return f"{are} being stopped on {on}; iris cancel --wait JOB waits for that"
