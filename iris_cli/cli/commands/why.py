"""`iris why`: explain a pending or failed job, or a worker's state."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument

EXAMPLES = """
iris why train  # why it is pending or failed
iris why train/task-3
iris why v5a-0  # what a worker can run
"""


def why(
    iris: Context,
    subject: Annotated[str, argument("JOB|TASK|WORKER", "Job, task or worker.", complete.ANYTHING)],
) -> None:
    """Explain a pending or failed job, or a worker's state."""
    from iris_cli.ops.views import why as ops
    from iris_cli.render.views.why import show_why

    show_why(iris.output, ops.why(iris.session("iris why"), subject))
