"""Jobs whose secrets can't be had here, or whose workspace or lines are gone: they wait, and say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iris_cli.core.ids import JobId
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, Missing
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.secret_values import NOT_SET, missing_secrets


def what_is_missing(cluster: Cluster, state: StateDir | None) -> Missing:
    """The open jobs that can't be started from here. `state` None: whether their files are there, nobody knows."""
    waiting = [job for job in cluster.open_jobs() if job.end is None]
    with_files = [job for job in waiting if job.workspace or job.each_line] if state is not None else []
    return Missing(
        secrets={
            job.id: [f"{name}: {problem}" for name, problem in missing.items()]
            for job in waiting
            if (missing := missing_secrets(job))
        },
        files={job.id: lost for job in with_files if state is not None and (lost := _lost(state, job))},
    )


def secrets_of_loop(
    cluster: Cluster, names: Mapping[JobId, Sequence[str]], here: Mapping[JobId, Sequence[str]], looked: float
) -> dict[JobId, Sequence[str]]:
    """The secrets that the background loop lacks, by job, each with why: a file is here what it is there.

    `names` are those that it found lacking when it last `looked`, in seconds since the epoch. Of a job that was
    submitted later, those count that are lacking `here`.
    """
    lacked = {job_id: each for job_id, each in here.items() if cluster.jobs[job_id].submitted_at > looked}
    for job_id, lacking in names.items():
        job = cluster.jobs.get(job_id)
        files = missing_secrets(job) if job is not None and job.secret_files else {}
        why = {name: problem for name, problem in files.items() if problem != NOT_SET}
        lacked[job_id] = [
            f"{name}: {why.get(name, 'not readable by the background loop')}" for name in lacking
        ]
    return lacked


def _lost(state: StateDir, job: Job) -> str:
    if job.workspace is not None and not state.workspaces.has(job.workspace.hash):
        return f"its packed workspace {job.workspace.hash[:12]} is gone; launch it again"
    if job.each_line is not None and not state.lines.has(job.each_line.hash):
        return "its --each-line file is gone; launch it again"
    return ""
