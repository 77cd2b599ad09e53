"""`iris release`: release held jobs for placement."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument

EXAMPLES = """
iris release sweep  # after iris hold sweep
iris release train-4 train-5
"""


def release(
    iris: Context,
    jobs: Annotated[list[str], argument("JOB...", "Held jobs.", complete.OPEN_JOB)],
) -> None:
    """Allow iris to place held jobs again.

    Their scheduling timeout starts again from zero.
    """
    from iris_cli.ops.jobs.change import change
    from iris_cli.render.jobs import show_changed

    session = iris.session("iris release")
    result = change(session, jobs, held=False)
    cycles = iris.cycles_for_json(session)
    show_changed(iris.output, session.cluster, result, "released", cycles, unchanged="not held")
    iris.print_no_cycles_reason()
