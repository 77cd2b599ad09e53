"""`iris report`: the past of the cluster on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode

_EXAMPLES = """Examples:

  iris report --html report.html

  iris report --html last-week.html --since 7d
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EXAMPLES)(report)


def report(
    context: typer.Context,
    html: Annotated[
        Path, typer.Option(help="Write the page to this file, also if it is there.", show_default=False)
    ],
    since: Annotated[
        str | None,
        typer.Option(help="From then on: an ISO time (UTC), or an age such as 7d.", show_default=False),
    ] = None,
) -> int:
    """Write a page about all jobs, from the log alone: who ran where and when, waiting times, chip-hours."""
    from iris_cli.ops import report as ops
    from iris_cli.ops.init import write_text
    from iris_cli.render.report.page import page
    from iris_cli.render.report.written import show_written

    iris: Context = context.obj
    told = ops.report(iris.session("iris report"), since)
    text = page(told)
    write_text(html, text, force=True)
    show_written(iris.output, told, html, len(text.encode()))
    return ExitCode.OK
