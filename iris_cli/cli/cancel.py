"""`iris cancel`: end jobs, and see that nothing of them is left."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli import complete
from iris_cli.cli.commands import Commands
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode, UsageError

_EXAMPLES = """
iris cancel train-3  # stops it everywhere
iris cancel train-3 --wait --reason "wrong data"  # until all of it is gone
iris cancel sweep- --prefix  # all whose ids begin so
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES)(cancel)


def cancel(
    context: typer.Context,
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB...",
            autocompletion=complete.OPEN_JOB,
            help="Exact job ids.",
            show_default=False,
        ),
    ],
    prefix: Annotated[bool, typer.Option("--prefix", help="All jobs whose ids begin with these.")] = False,
    reason: Annotated[
        str, typer.Option(metavar="WORDS", help="Why, for the history.", show_default=False)
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every process is proven gone.")] = False,
) -> int:
    """Cancel jobs and their children.

    A task gets SIGTERM, the grace of its job to end in, then SIGKILL.
    """
    from iris_cli.ops import cancel as operation
    from iris_cli.render import cancelled

    iris: Context = context.obj
    if iris.is_inside:
        from iris_cli.cli import inside

        if prefix or wait:
            raise UsageError("--prefix and --wait are not for the inside of a task", hint="iris wait JOB")
        return inside.cancel(iris, jobs, reason)
    session = iris.session("iris cancel")
    result = operation.cancel(session, jobs, prefix=prefix, reason=reason)
    stopped = operation.wait_until_stopped(session, result) if wait else True
    cancelled.show(iris.output, session.cluster, result, waited=wait)
    return ExitCode.OK if stopped else ExitCode.UNREACHABLE
