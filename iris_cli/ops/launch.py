"""Submit a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_cli.core.cluster import Cluster
from iris_cli.core.constraint_types import Constraint, ConstraintOp
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import JobId, WorkerId, clip
from iris_cli.core.job import JobRequest, Workspace
from iris_cli.core.lifecycle.near_misses import near_misses
from iris_cli.core.lifecycle.submit import over, submit
from iris_cli.core.task import AttemptState
from iris_cli.errors import LockedError, WorkspaceGoneError
from iris_cli.ops.each_line import text_of, with_lines
from iris_cli.ops.offered import fleet
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Plan
    from iris_cli.ops.workspace.entries import Listing


_SETTING_UP = 10.0  # seconds: to unpack a directory takes less, to install a framework more
_FIRST_LOOK = 0.1


def launch(session: Session, request: JobRequest) -> JobId:
    """Commit the job. It is in the log when this returns, and nothing has been sent anywhere.

    BEFORE that its directory is packed, without the lock; and the lines that it has a task for each of are kept,
    of which the log holds no more than their hash.
    """
    request = with_lines(request)
    if request.workdir is not None:
        _submit(session, Draft(session.view(), session.clock.now()), request)  # tells what else is wrong
        from iris_cli.ops.workspace.pack import packed

        request = packed(session, request)
    with session.transaction() as draft:
        job, slips = _submit(session, draft, request)
        if request.workspace is not None:
            _check_kept(session, request.workspace)
        if request.each_line is not None:
            session.state.lines.put([text_of(request.each_line)])
    _warn(session, slips)
    return job


def see_it_start(session: Session, job: JobId) -> None:
    """Stay while its tasks are being set up, for a few seconds: they would else wait for the next cycle."""
    from iris_cli.ops.cycle import run

    until, pause = session.clock.monotonic() + _SETTING_UP, _FIRST_LOOK
    left = whole = len(being_set_up(session.cluster, job))
    with session.progress(lambda: ("setting up", whole - left, whole, "worker")):
        while left and session.clock.monotonic() + pause < until:
            session.clock.sleep(pause)
            pause *= 2  # whoever is slow is asked less often
            try:
                run(session, schedule=False)
            except LockedError:  # somebody else is at it
                return
            left = len(being_set_up(session.cluster, job))


def being_set_up(cluster: Cluster, job: JobId) -> list[WorkerId]:
    """The workers on which tasks of this job are brought what they need, and have not started."""
    asked = cluster.jobs[job]
    if not asked.workspace and not asked.setup:
        return []
    last = [task.attempts[-1] for task in cluster.tasks_of(job) if task.attempts]
    return [attempt.worker for attempt in last if attempt.state is AttemptState.ASSIGNED]


def _check_kept(session: Session, workspace: Workspace) -> None:
    """Only the holder of the lock removes one."""
    if not session.state.workspaces.has(workspace.hash):
        raise WorkspaceGoneError(
            f"the packed workspace {workspace.hash[:12]} was removed in the meantime", hint="launch it again"
        )


def shipped(session: Session, request: JobRequest) -> Listing | None:
    """What would be shipped with the job, if anything is; warnings are told. Raises UsageError."""
    from iris_cli.ops.workspace.pack import listing, warn

    found = listing(session, request)
    if found is not None:
        warn(session, found)
    return found


def dry_run(session: Session, request: JobRequest | None = None) -> tuple[Plan, Cluster, JobId | None]:
    """The plan of a cycle that began now, with the job if there is one; nothing is written or sent."""
    from iris_cli.ops.cycle import assign  # with all of the scheduler, which a launch may have no use for

    draft = Draft(session.view(), session.clock.now())
    request = request and with_lines(request)
    job, slips = _submit(session, draft, request) if request is not None else (None, [])
    made, _ = assign(session, draft)
    _warn(session, slips)
    return made, draft.cluster, job


def _submit(session: Session, draft: Draft, request: JobRequest) -> tuple[JobId, list[str]]:
    """The job, and what may be slips of the pen in its constraints, and in what its workers are to share."""
    there = fleet(session, draft.cluster)
    whole = over(request, session.config.defaults.job)
    job = draft.cluster.jobs[submit(draft, whole, there, session.limits)]
    shared = [Constraint(job.coscheduling.group_by, ConstraintOp.EXISTS)] if job.coscheduling else []
    return job.id, [*near_misses([*job.constraints, *shared], there), *left_behind(whole)]


def left_behind(request: JobRequest) -> list[str]:
    """What the command names of the directory that it was typed in, where that is not shipped."""
    if request.workdir is not None or request.workspace is not None:
        return []
    return [
        f"{clip(word)} is not shipped: a task starts in an empty directory; --workdir . brings this one along"
        for word in dict.fromkeys(request.command or ())
        if not word.startswith("/") and os.path.isfile(word)  # absolute paths are those of the workers
    ]


def _warn(session: Session, slips: list[str]) -> None:
    for slip in slips:
        session.tell(f"warning: {slip}")
