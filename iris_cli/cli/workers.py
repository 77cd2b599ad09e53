"""`iris workers`: the inventory."""

from __future__ import annotations

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: iris workers")(workers)


def workers(context: typer.Context) -> int:
    """List the workers: what is free there, how they are, and why they take nothing if so."""
    from iris_cli.ops.inventory import inventory
    from iris_cli.render.workers import show_inventory

    iris: Context = context.obj
    show_inventory(iris.output, inventory(iris.session("iris workers")))
    return ExitCode.OK
