"""Jobs whose packed workspace or whose lines are not in the state directory any more: they wait, and say so."""

from __future__ import annotations

from iris_cli.core.cluster import Cluster
from iris_cli.core.ids import JobId
from iris_cli.core.job import Job
from iris_cli.journal.state_dir import StateDir


def jobs_without_files(state: StateDir, cluster: Cluster) -> dict[JobId, str]:
    """Open jobs that can't be started as what they were launched with is gone; with what that is, in words."""
    found = {}
    for job in cluster.open_jobs():
        if job.end is None and (job.workspace or job.each_line) and (lost := _lost(state, job)):
            found[job.id] = lost
    return found


def _lost(state: StateDir, job: Job) -> str:
    if job.workspace is not None and not state.workspaces.has(job.workspace.hash):
        return f"its packed workspace {job.workspace.hash[:12]} is gone; launch it anew"
    if job.each_line is not None and not state.lines.has(job.each_line.hash):
        return "the lines that it was launched with are gone; launch it anew"
    return ""
