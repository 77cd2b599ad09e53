"""`iris autoscale`: create slices for pending jobs, delete idle slices."""

from typing import Annotated

from iris_cli.cli import consent, cycles
from iris_cli.cli.command_types import Context, flag, option, parse_interval
from iris_cli.errors import ExitCode, UsageError

EXAMPLES = """
iris autoscale --dry-run  # what it would create and delete, and why
iris autoscale --interval 60  # one pass per minute
iris autoscale --adopt  # after the state directory was moved
"""


def autoscale(
    iris: Context,
    once: Annotated[bool, flag("--once", "Run one pass (the default).")] = False,
    interval: Annotated[
        float | None,
        option("TIME", "Repeat, with this time between passes: 10s, 5m.", parser=parse_interval),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "Show demand, routing, reasons and actions; change nothing.")
    ] = False,
    adopt: Annotated[
        bool, flag("--adopt", "Manage the slices from this state directory, after it was moved or restored.")
    ] = False,
    yes: Annotated[bool, flag("--yes", "With --adopt: do not ask.")] = False,
) -> int:
    """Create slices for pending jobs; delete idle slices.

    Creates slices of `scale_groups` for jobs that no worker has room for, and deletes idle, failed and preempted
    slices. Places no tasks: `iris schedule --autoscale` does both.
    """
    from iris_cli.ops import autoscale as operation
    from iris_cli.ops.views.scale_status import owner_conflict, scaling_rows
    from iris_cli.render import slices as render

    if adopt:
        if once or dry_run or interval is not None:
            raise UsageError("--adopt can't be combined with other options")
        return _adopt(iris, yes=yes)
    if yes:
        raise UsageError("--yes needs --adopt", hint="drop --yes")
    if dry_run:
        session = iris.session("iris autoscale --dry-run")
        plan = operation.dry_run(session)
        iris.output.warnings(session.messages)
        render.show_plan(iris.output, plan, scaling_rows(session.cluster, plan, session.clock.now()))
        if (found := owner_conflict(session)) is not None:
            iris.output.warning(f"no slices are created or deleted: {found}")
        return ExitCode.OK
    return cycles.autoscale(iris, once=once, interval=interval)


def _adopt(iris: Context, *, yes: bool) -> int:
    from iris_cli.ops import autoscale as operation
    from iris_cli.render import slices as render

    session = iris.session("iris autoscale --adopt")
    conflict, silent = operation.find_owner_conflict(session)
    for scope, error in silent.items():
        iris.output.warning(f"{scope} did not list its slices: {error}")
    agreed = conflict is not None and consent.is_given(
        iris, render.adopt_question(conflict), yes=yes, action="adopt the slices"
    )
    if conflict is not None and agreed:
        operation.adopt(session, conflict.unknown)
    render.show_adopted(iris.output, conflict, done=agreed)
    return ExitCode.OK if agreed or conflict is None else ExitCode.FAILED
