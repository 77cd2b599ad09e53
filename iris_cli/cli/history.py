"""`iris history`: what happened, from the log."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: iris history train/task-0 --limit 20")(history)


def history(
    context: typer.Context,
    subject: Annotated[
        str, typer.Argument(metavar="[JOB|TASK|WORKER]", show_default=False, help="Only what is about this.")
    ] = "",
    limit: Annotated[int, typer.Option(min=0, help="Show so many of the newest events; 0 shows all.")] = 100,
) -> int:
    """Tell what happened: one line for each event, the newest last."""
    from iris_cli.ops import history as ops
    from iris_cli.render.history import show_history

    iris: Context = context.obj
    show_history(iris.output, ops.history(iris.session("iris history"), subject, limit=limit))
    return ExitCode.OK
