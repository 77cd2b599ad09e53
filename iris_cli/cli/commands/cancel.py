"""`iris cancel`: cancel jobs and stop their attempts."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, Labels, States, argument, flag, option
from iris_cli.errors import ExitCode, UsageError

EXAMPLES = """
iris cancel train-3  # one job
iris cancel train-3 --wait --reason "wrong data"  # wait until it has stopped
iris cancel sweep- --prefix  # all jobs with this prefix
iris cancel --label sweep=lr --state pending  # pending ones by label
"""


def cancel(
    iris: Context,
    jobs: Annotated[list[str] | None, argument("[JOB]...", "Exact job ids.", complete.OPEN_JOB)] = None,
    prefix: Annotated[bool, flag("--prefix", "Cancel all jobs whose ids begin with JOB.")] = False,
    label: Labels = None,
    state: States = None,
    reason: Annotated[str, option("TEXT", "Reason, shown in the history.")] = "",
    wait: Annotated[bool, flag("--wait", "Wait until every process is proven gone.")] = False,
) -> int:
    """Cancel jobs and their children.

    Each task gets SIGTERM, then SIGKILL after the grace period of its job.
    """
    from iris_cli.ops.jobs import change as operation
    from iris_cli.ops.names import job_filter
    from iris_cli.render import jobs as render

    names, wanted = jobs or [], job_filter(label or (), state or ())
    if not names and not wanted:
        raise UsageError("no jobs given", hint="name jobs, or select them with --label or --state")
    if prefix and not names:
        raise UsageError("--prefix needs the beginning of a job id", hint="iris cancel sweep- --prefix")
    if iris.is_in_task:
        from iris_cli.cli import inside

        if prefix or wait or wanted:
            raise UsageError(
                "--prefix, --label, --state and --wait are not available inside a task", hint="name the jobs"
            )
        return inside.cancel(iris, names, reason)
    session = iris.session("iris cancel")
    result = operation.cancel(session, names, prefix=prefix, job_filter=wanted, reason=reason)
    try:
        stopped = operation.wait_until_stopped(session, result) if wait else True
    except KeyboardInterrupt:
        render.show_cancelled(iris.output, session.cluster, result)  # the jobs stay cancelled
        raise
    no_cycles = iris.take_no_cycles_reason() if wait and result.stopping else ""
    cycles = iris.cycles_for_json(session)
    render.show_cancelled(
        iris.output, session.cluster, result, waited=wait, no_cycles=no_cycles, cycles=cycles
    )
    return ExitCode.OK if stopped else ExitCode.UNREACHABLE
