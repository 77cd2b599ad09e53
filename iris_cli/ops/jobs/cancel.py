"""Cancel jobs and wait until their processes have stopped."""

from __future__ import annotations

from msgspec import Struct, field

from iris_cli.core import AttemptId, Cluster, JobId
from iris_cli.core.lifecycle import jobs, workers
from iris_cli.errors import NotFoundError
from iris_cli.ops.cycle.cycle import run, send_stops
from iris_cli.ops.names import EVERY_JOB, JobFilter, find_jobs
from iris_cli.ops.session import Session

_PAUSE = 1.0  # seconds between two cycles


class Cancelled(Struct):
    """Result of a cancellation. `stopping`: attempts whose end is not proven."""

    cancelled: list[JobId] = field(default_factory=list)
    already_ended: list[JobId] = field(default_factory=list)
    stopping: list[AttemptId] = field(default_factory=list)


def cancel(
    session: Session,
    names: list[str],
    *,
    prefix: bool = False,
    job_filter: JobFilter = EVERY_JOB,
    reason: str = "",
) -> Cancelled:
    """Cancel the jobs that match `job_filter`, and their child jobs. Then send the stop calls once.

    `names`: jobs to choose from; all open jobs if it is empty. Raises NotFoundError if no job matches.
    """
    result = Cancelled()
    with session.transaction() as draft:
        for job in _choose_jobs(draft.cluster, names, prefix, job_filter):
            has_ended = draft.cluster.job_state(job).terminal
            (result.already_ended if has_ended else result.cancelled).append(job)
        for job in result.cancelled:
            jobs.cancel(draft, job, reason)  # no effect on a child job that has just ended with its parent
    send_stops(session)
    result.stopping = _live_attempts(session.cluster, result.cancelled + result.already_ended)
    return result


def _choose_jobs(cluster: Cluster, names: list[str], prefix: bool, job_filter: JobFilter) -> list[JobId]:
    found = find_jobs(cluster, names, prefix=prefix) if names else [job.id for job in cluster.open_jobs()]
    matching = [job for job in found if job_filter.matches(cluster, cluster.jobs[job])]
    if not matching:
        hint = next(job_filter.unknown_labels(cluster), "`iris status` lists the jobs")
        raise NotFoundError(f"no {'such' if names else 'open'} job matches the --label or --state", hint=hint)
    return matching


def wait_until_stopped(session: Session, result: Cancelled) -> bool:
    """Run cycles until all stopping attempts have ended, and return True.

    Return False if all remaining attempts are on unreachable workers.
    """
    total = len(result.stopping)
    with session.progress(lambda: ("stopping", total - len(result.stopping), total, "task")):
        while result.stopping:
            run(session, schedule=False)
            result.stopping = _live_attempts(session.cluster, result.cancelled + result.already_ended)
            if not result.stopping:
                return True
            if all(_is_unreachable(session, attempt) for attempt in result.stopping):
                return False
            session.clock.sleep(_PAUSE)
    return True


def _live_attempts(cluster: Cluster, jobs: list[JobId]) -> list[AttemptId]:
    """Return the live attempts of these jobs and of their child jobs."""
    prefixes = tuple(f"{job}/" for job in jobs)
    with_children = [job.id for job in cluster.open_jobs() if f"{job.id}/".startswith(prefixes)]
    return [attempt_id for job in with_children for attempt_id, _ in cluster.live_attempts_of(job)]


def _is_unreachable(session: Session, attempt_id: AttemptId) -> bool:
    worker = session.cluster.workers[session.cluster.attempt(attempt_id).worker]
    return worker.quarantined or workers.is_backing_off(
        session.cluster, worker, session.clock.now(), session.limits
    )
