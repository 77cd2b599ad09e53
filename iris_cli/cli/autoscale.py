"""`iris autoscale`: make slices for what waits, give back those that are idle."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli import quick
from iris_cli.cli.commands import Commands
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode

_EXAMPLES = """
iris autoscale --dry-run  # what it would make and delete, and why
iris autoscale --interval 60  # a pass a minute
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES)(autoscale)


def autoscale(
    context: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="One pass, then end: the default, and for cron.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Go on, with this many seconds between passes.",
            min=0.1,
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show demand, routing, reasons and actions; ask nobody, change nothing."
        ),
    ] = False,
) -> int:
    """Make slices for what waits, delete those that are idle.

    Of scale groups, for what no worker has room for; failed and preempted ones are deleted, too. It places nothing:
    `iris schedule --autoscale` does both.
    """
    from iris_cli.ops import autoscale as operation
    from iris_cli.ops.scale_status import scaling_rows
    from iris_cli.render import scaling as render

    iris: Context = context.obj
    if dry_run:
        session = iris.session("iris autoscale --dry-run")
        plan = operation.dry_run(session)
        render.show_plan(iris.output, plan, scaling_rows(session.cluster, plan, session.clock.now()))
        return ExitCode.OK
    return quick.autoscale(iris, once=once, interval=interval)
