"""`iris why`: why something waits, where it runs, how it ended; or what a worker takes."""

from typing import Annotated

import typer

from iris_cli.cli import complete
from iris_cli.cli.command_types import argument
from iris_cli.cli.context import Context

EXAMPLES = """
iris why train  # what a job waits for, or why it failed
iris why train/task-3
iris why v5a-0  # what a worker takes, and what it doesn't
"""


def why(
    context: typer.Context,
    subject: Annotated[str, argument("JOB|TASK|WORKER", "Job, task or worker.", complete.ANYTHING)],
) -> None:
    """Explain a pending, failed or quiet job, or a worker's state.

    For quiet tasks it also asks the workers which ranks are in the same place.
    """
    from iris_cli.ops.logs.stacks import stacks
    from iris_cli.ops.views import why as ops
    from iris_cli.render.logs.stacks import show_places
    from iris_cli.render.views.why import show_why

    iris: Context = context.obj
    session = iris.session("iris why")
    answer = ops.why(session, subject)
    show_why(iris.output, answer)
    if answer.quiet and not (iris.output.as_json or iris.output.quiet):
        iris.output.flush()  # the workers may take their time
        show_places(iris.output, stacks(session, subject))
