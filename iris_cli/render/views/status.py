"""The views of `iris status` as JSON, quietly, or as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_cli.ops.views.status import ClusterStatus
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.ops.views.job_status import JobStatus

MOST_LISTED = 100
"""How many jobs that have ended a program gets to see unless it asks for all."""


def ended_jobs(output: Output) -> int:
    """How many of the jobs that have ended are shown if not all are asked for."""
    if output.as_json or output.quiet:
        return MOST_LISTED
    from iris_cli.render.views.cluster_tables import MOST_ENDED

    return MOST_ENDED


def show_cluster(
    output: Output, status: ClusterStatus, *, everything: bool = False, chosen: bool = False
) -> None:
    """The cluster; `everything`: also jobs that ended long ago; `chosen`: not all jobs were asked for."""
    if output.as_json:
        output.document(status)
    elif output.quiet:
        output.warnings(status.messages)
        for job in status.jobs:
            output.line(job.id)
    else:
        from iris_cli.render.views.cluster_tables import cluster_tables

        output.show(cluster_tables(status, output.width, everything=everything, chosen=chosen))


def show_job(output: Output, status: JobStatus, *, everything: bool = False) -> None:
    """One job; `everything`: a line for every task and attempt."""
    if output.as_json:
        output.document(status)
    elif output.quiet:
        output.warnings(status.messages)
        for task in status.tasks:
            output.line(str(task.id))
    else:
        from iris_cli.render.views.job_tables import job_tables

        output.show(job_tables(status, output.width, everything=everything))
