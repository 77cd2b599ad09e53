"""`iris why`: why something waits, where it runs, how it ended; or what a worker takes."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: iris why train")(why)


def why(
    context: typer.Context,
    subject: Annotated[str, typer.Argument(metavar="JOB|TASK|WORKER", help="What to explain.")],
) -> int:
    """Say why a job or task waits, what became of it, or what a worker takes."""
    from iris_cli.ops import why as ops
    from iris_cli.render.why import show_why

    iris: Context = context.obj
    show_why(iris.output, ops.why(iris.session("iris why"), subject))
    return ExitCode.OK
