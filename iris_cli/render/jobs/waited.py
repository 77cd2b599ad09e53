"""How the jobs ended that were waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core.ids import JobId
from iris_cli.core.lifecycle.display import job_display
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobState
from iris_cli.ops.loop.wait import Waited
from iris_cli.ops.views.cycles import Cycles
from iris_cli.ops.views.failure import cause_words
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.journal.state_dir import StateDir


class WaitedJob(Struct, frozen=True, kw_only=True):
    """One job. `reason` is the cause of its end. Inside a task `display` may be absent."""

    job: JobId
    state: JobState
    display: str | UnsetType = UNSET
    reason: str


class WaitedDocument(Struct, frozen=True):
    """The result of `iris wait` and of `--wait`. `timed_out`: some jobs have not ended. No `cycles` in a task."""

    jobs: Sequence[WaitedJob]
    timed_out: bool
    cycles: Cycles | UnsetType | None = UNSET


def show(
    output: Output,
    cluster: Cluster,
    waited: Waited,
    files: StateDir | None = None,
    *,
    no_cycles: str = "",
    cycles: Cycles | None = None,
) -> None:
    """One line for each job, with the cause as `files` may tell it; what is open goes to stderr, with what to type.

    `no_cycles` says what to type if no cycle follows; `cycles` says who runs them, for the document.
    """
    causes = {job: cause_words(cluster, cluster.jobs[job], files) for job in waited.states}
    displays = {job: job_display(cluster, job) for job in waited.states}
    if output.as_json:
        output.document(
            WaitedDocument(
                [
                    WaitedJob(job=job, state=state, display=displays[job], reason=causes[job])
                    for job, state in waited.states.items()
                ],
                timed_out=bool(waited.open),
                cycles=cycles,
            )
        )
    else:
        for job, state in waited.states.items():
            tell = output.done if state is JobState.SUCCEEDED else output.failed
            tell(f"{job}: {displays[job]}" + (f": {causes[job]}" if causes[job] else ""))
    if waited.open:
        names = " ".join(waited.open)
        goes = f"{names} {'continues' if len(waited.open) == 1 else 'continue'}"
        output.warning(f"timed out: {no_cycles or goes}")
        output.message(f"hint: iris wait {names}, iris why {waited.open[0]}, or iris cancel {names}")
        if waited.trouble is not None and not no_cycles:
            output.warning(f"no cycle could be run: {waited.trouble.message}")
