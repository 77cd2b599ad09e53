"""`iris retry`: stop running attempts and place their tasks again."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument

EXAMPLES = """
iris retry train  # all running tasks
iris retry sweep/task-3  # one task of an array
iris retry train/task-0  # a rank of a gang: retries the whole gang
"""


def retry(
    iris: Context,
    subject: Annotated[
        str, argument("JOB|TASK", "Open job, or task of an open job.", complete.OPEN_JOB_OR_TASK)
    ],
) -> None:
    """Stop running attempts and place their tasks again.

    No retry is charged. The tasks are placed when every stopped attempt has ended. A gang is stopped as a whole.
    """
    from iris_cli.ops.jobs import change as operation
    from iris_cli.render import jobs as render

    session = iris.session("iris retry")
    result = operation.retry(session, subject)
    render.show_retried(iris.output, session.cluster, result, iris.cycles_for_json(session))
    iris.print_no_cycles_reason()
