"""`iris history`: show the events of the log."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument, flag, option

EXAMPLES = """
iris history  # the last 100 events
iris history train/task-0 --limit 20
iris history v5a-0 --all  # including the archive
"""


def history(
    iris: Context,
    subject: Annotated[
        str | None,
        argument("[JOB|TASK|WORKER]", "Only events of this job, task or worker.", complete.ANYTHING),
    ] = None,
    limit: Annotated[
        int, option("N", "Show the newest N events; 0 shows all.", min=0, show_default=True)
    ] = 100,
    everything: Annotated[bool, flag("--all", "Include the archive.")] = False,
) -> None:
    """Show the events of the log, one per line."""
    from iris_cli.ops.views import history as ops
    from iris_cli.render.event_log import show_history

    session = iris.session("iris history")
    show_history(iris.output, ops.history(session, subject, limit=limit, archive=everything))
