"""`iris status`: show the cluster and its jobs, or one job and its tasks."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, Labels, States, argument, flag, option
from iris_cli.errors import ExitCode, UsageError

EXAMPLES = """
iris status  # the cluster and its jobs
iris status train  # one job: where it runs, or why not
iris status train --at 2h  # two hours ago
iris status --state running --label team=vision
"""


def status(
    iris: Context,
    job: Annotated[str | None, argument("[JOB]", "Show only this job.", complete.JOB)] = None,
    at: Annotated[
        str | None, option("TIME", "Show an earlier state: an ISO time (UTC), or an age such as 2h.")
    ] = None,
    watch: Annotated[bool, flag("--watch -w", "Keep watching, on a live screen.")] = False,
    label: Labels = None,
    state: States = None,
    everything: Annotated[bool, flag("--all", "Show all jobs, and one line per task.")] = False,
) -> int:
    """Show the cluster and its jobs, or one job. Instant: no network, no lock."""
    labels, states = label or (), state or ()
    iris.starts_loop = False
    if iris.is_in_task:
        from iris_cli.cli import inside

        return inside.status(iris, job)
    from iris_cli.ops.views.status import cluster_status
    from iris_cli.render.views import status as render

    if job is not None and (labels or states):
        raise UsageError(
            "--label and --state can't be combined with a job", hint=f"drop them: iris status {job}"
        )
    session = iris.session("iris status")

    def show() -> None:
        if job is not None:
            from iris_cli.ops.views.job_status import job_status
            from iris_cli.render.views.job_tables import show_job

            show_job(iris.output, job_status(session, job, at=at), everything=everything)
        else:
            opened = None if everything else render.open_jobs(iris.output)
            ended = None if everything else render.ended_jobs(iris.output)
            found = cluster_status(session, at=at, labels=labels, states=states, opened=opened, ended=ended)
            chosen = bool(labels or states)
            render.show_cluster(iris.output, found, everything=everything, chosen=chosen, states=states)

    if not watch:
        show()
        return ExitCode.OK
    from iris_cli.cli import cycles

    return cycles.status(iris, session, job, at=at, labels=labels, states=states, everything=everything)
