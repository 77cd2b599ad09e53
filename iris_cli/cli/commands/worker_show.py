"""`iris worker show`: everything about one worker."""

import typer

from iris_cli.cli.arguments import WorkerName
from iris_cli.cli.command_types import Commands
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode

_EXAMPLES = """
iris worker show v5a-0
iris worker show v5a-0 --json
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES)(show)


def show(context: typer.Context, worker: WorkerName) -> int:
    """Show a worker's hardware, condition and tasks."""
    from iris_cli.ops.views import inventory
    from iris_cli.render.workers import show_worker

    iris: Context = context.obj
    show_worker(iris.output, inventory.show(iris.session("iris worker show"), worker))
    return ExitCode.OK
