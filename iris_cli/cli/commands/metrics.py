"""`iris metrics`: print metrics for Prometheus."""

from pathlib import Path
from typing import Annotated

from iris_cli.cli.command_types import Context, option

EXAMPLES = """
iris metrics
iris metrics --textfile /var/lib/node_exporter/iris.prom  # from cron
"""


def metrics(
    iris: Context,
    textfile: Annotated[
        Path | None, option("FILE", "Write to this file, for node_exporter, replacing it in one step.")
    ] = None,
) -> None:
    """Print metrics in the text format of Prometheus.

    Jobs, tasks, workers, slices and chips by state, use of the chips in the last 24 hours, age of the last cycle.
    """
    from iris_cli.ops.views import metrics as ops
    from iris_cli.render.metrics import prometheus_text

    figures = ops.metrics(iris.session("iris metrics"))
    if textfile is not None:
        from iris_cli.ops.setup.init import write_text

        write_text(textfile, prometheus_text(figures), force=True, mode=0o644)
    if iris.output.as_json:
        iris.output.document(figures)
    elif textfile is None:
        iris.output.lines(prometheus_text(figures))
