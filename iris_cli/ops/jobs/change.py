"""Hold, release and reorder open jobs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from iris_cli.core import JobId, Priority, clip
from iris_cli.core.lifecycle import jobs
from iris_cli.core.lifecycle.resubmission import resubmit_command
from iris_cli.errors import UsageError
from iris_cli.ops.names import find_jobs
from iris_cli.ops.session import Session


class Changed(Struct):
    """Result of a change. `unchanged` are jobs that already had the new values."""

    changed: list[JobId]
    unchanged: list[JobId]


def change(
    session: Session,
    names: Sequence[str],
    *,
    held: bool | None = None,
    priority: Priority | None = None,
    scheduling_timeout: float | None = None,
) -> Changed:
    """Change open jobs in one transaction. A value None keeps the job's value. Running tasks continue.

    If a job does not exist (NotFoundError) or has ended (UsageError), no job is changed.
    """
    with session.transaction() as draft:
        found = find_jobs(draft.cluster, list(names))
        for job in found:
            state = draft.cluster.job_state(job)
            if state.terminal:
                raise UsageError(
                    f"{clip(job)} has ended ({state})",
                    hint=resubmit_command(draft.cluster, draft.cluster.jobs[job]),
                )
        changed = [
            job
            for job in found
            if jobs.change(draft, job, held=held, priority=priority, scheduling_timeout=scheduling_timeout)
        ]
    return Changed(changed, [job for job in found if job not in changed])
