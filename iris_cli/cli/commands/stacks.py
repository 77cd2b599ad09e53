"""`iris stacks`: show the Python stacks of running ranks."""

from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, Ranks, argument, option
from iris_cli.errors import ExitCode

EXAMPLES = """
iris stacks train  # identical stacks once
iris stacks train --rank 7 --json
iris stacks train/task-0 --signal USR1
"""


def stacks(
    iris: Context,
    target: Annotated[str, argument("JOB|TASK", "Job or task.", complete.LIVE)],
    rank: Ranks = None,
    signal: Annotated[
        str,
        option(
            "NAME",
            "Send USR1 or USR2 to every program that handles it. Its handler must be faulthandler's.",
        ),
    ] = "",
) -> int:
    """Show the Python stacks of each running rank.

    Shows all threads, identical stacks once. Uses py-spy if the worker has it, otherwise a signal to programs that
    registered faulthandler for it. For programs without a stack, shows thread states from /proc.
    """
    from iris_cli.core.text import one_of
    from iris_cli.ops.logs.stacks import stacks as ask
    from iris_cli.remote.stack_calls import SIGNALS
    from iris_cli.render.logs.stacks import show_stacks

    consent = one_of(signal.strip().upper().removeprefix("SIG"), SIGNALS) if signal else ""
    session = iris.session("iris stacks")
    results = ask(session, target, ranks=tuple(rank or ()), consent=consent)
    iris.output.warnings(session.messages)
    show_stacks(iris.output, results, target)
    if any(each.silence for each in results):
        return ExitCode.UNREACHABLE
    queried = [each for each in results if each.answer is not None]
    return ExitCode.OK if queried and all(each.has_stacks for each in queried) else ExitCode.FAILED
