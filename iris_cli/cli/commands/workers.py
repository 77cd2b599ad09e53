"""`iris workers`: the inventory."""

import typer

from iris_cli.cli.command_types import Commands
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode

_EXAMPLES = """
iris workers
iris workers --json | jq -r '.workers[].id'
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES)(workers)


def workers(context: typer.Context) -> int:
    """List the workers with free resources and problems.

    Shows free resources, condition, and why a worker accepts no tasks.
    """
    from iris_cli.ops.views.inventory import inventory
    from iris_cli.render.workers import show_inventory

    iris: Context = context.obj
    show_inventory(iris.output, inventory(iris.session("iris workers")))
    return ExitCode.OK
