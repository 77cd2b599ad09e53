"""`iris worker show`: everything about one worker."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode


def register(worker_app: typer.Typer) -> None:
    worker_app.command(epilog="Example: iris worker show v5a-0")(show)


def show(
    context: typer.Context,
    worker: Annotated[str, typer.Argument(help="The worker's id.")],
) -> int:
    """Show what a worker is, how it is, and what it holds."""
    from iris_cli.ops import inventory
    from iris_cli.render.workers import show_worker

    iris: Context = context.obj
    show_worker(iris.output, inventory.show(iris.session("iris worker show"), worker))
    return ExitCode.OK
