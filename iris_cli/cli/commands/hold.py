"""`iris hold`: do not place the pending tasks of jobs."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument

EXAMPLES = """
iris hold sweep  # later: iris release sweep
iris hold train-4 train-5
"""


def hold(
    iris: Context,
    jobs: Annotated[list[str], argument("JOB...", "Open jobs.", complete.OPEN_JOB)],
) -> None:
    """Do not place the pending tasks of jobs.

    Running tasks continue. While a job is held, its scheduling timeout is suspended and no slice is created for it.
    """
    from iris_cli.ops.jobs.change import change
    from iris_cli.render.jobs import show_changed

    session = iris.session("iris hold")
    result = change(session, jobs, held=True)
    show_changed(iris.output, session.cluster, result, "held", iris.cycles_for_json(session))
