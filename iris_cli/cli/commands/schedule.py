"""`iris schedule`: run one scheduling cycle, or one at an interval."""

from typing import Annotated

from iris_cli.cli import cycles
from iris_cli.cli.command_types import Context, check_seconds, flag, option, parse_interval
from iris_cli.errors import ExitCode

EXAMPLES = """
iris schedule  # one cycle, now
iris schedule --once --lock-timeout 0  # for cron: never wait for the lock
iris schedule --dry-run  # what would be placed
"""


def schedule(
    iris: Context,
    once: Annotated[bool, flag("--once", "Run one cycle (the default).")] = False,
    interval: Annotated[
        float | None,
        option("TIME", "Repeat, with this time between cycles: 10s, 5m.", parser=parse_interval),
    ] = None,
    autoscale: Annotated[
        bool, flag("--autoscale", "Before each cycle create slices for pending jobs and delete idle ones.")
    ] = False,
    cron: Annotated[
        float | None,
        option(
            "SECONDS",
            "Interval of the cron entry.",
            min=1,
            callback=check_seconds,
            hidden=True,
            show_default=True,
        ),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be placed; change nothing.")] = False,
) -> int:
    """Run one scheduling cycle: poll, place, dispatch.

    This is the command to run from cron.
    """
    if dry_run:
        return _show_plan(iris)
    return cycles.schedule(iris, once=once, interval=interval, scale=autoscale, cron=cron)


def _show_plan(iris: Context) -> int:
    from iris_cli.ops.jobs.launch import dry_run
    from iris_cli.render import plans as render

    session = iris.session("iris schedule --dry-run")
    plan, cluster, _ = dry_run(session)
    iris.output.warnings(session.messages)
    render.show_plan(iris.output, plan, cluster)
    return ExitCode.OK
