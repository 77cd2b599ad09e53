"""`iris watch`: follow the cluster, and take gangs down when a rank fails."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  iris watch --schedule")(watch)


def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="One cycle, then end.")] = False,
    schedule: Annotated[bool, typer.Option("--schedule", help="Place waiting jobs too.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when every job is over.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between cycles.", min=0.1)] = 2.0,
) -> int:
    """Poll the workers, settle what ended, take a gang down when a rank fails; show it as it happens."""
    from iris_cli.ops import watch as operation
    from iris_cli.render.watch import Screen

    iris: Context = context.obj
    session = iris.session("iris watch")
    with Screen(iris.output, session) as screen:
        for step in operation.watch(session, interval=interval, schedule=schedule, once=once):
            screen.show(step)
            if until_idle and step.idle:
                break
    return ExitCode.OK
