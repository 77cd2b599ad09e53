"""`iris report`: summarize all jobs."""

from pathlib import Path
from typing import Annotated

from iris_cli.cli.command_types import Context, option

EXAMPLES = """
iris report --since 7d
iris report --html report.html  # a page with a chart
iris report --json | jq '.total.chip_seconds / 3600'
"""


def report(
    iris: Context,
    html: Annotated[
        Path | None, option("FILE", "Write an HTML page with a chart to this file, overwriting it.")
    ] = None,
    since: Annotated[
        str | None, option("TIME", "Start of the report: an ISO time (UTC), or an age such as 7d.")
    ] = None,
) -> None:
    """Summarize all jobs.

    Chip-hours by job and label, waiting times, retries, lost work.
    """
    from iris_cli.ops.views import report as ops

    found = ops.report(iris.session("iris report"), since)
    if html is None:
        from iris_cli.render.report.summary import show_report

        show_report(iris.output, found)
    else:
        from iris_cli.ops.setup.init import write_text
        from iris_cli.render.report.page import page
        from iris_cli.render.report.summary import show_written

        text = page(found)
        write_text(html, text, force=True)
        show_written(iris.output, found, html, len(text.encode()))
