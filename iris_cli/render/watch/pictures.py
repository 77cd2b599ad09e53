"""What a screen may show: the whole cluster, or one job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.text import Text

from iris_cli.ops.session import Session
from iris_cli.ops.views.board import board
from iris_cli.ops.views.job_status import JobStatus, job_status
from iris_cli.render.clean import clean_line
from iris_cli.render.console import Output
from iris_cli.render.views.job_tables import job_tables
from iris_cli.render.watch.board import Moment, Picture, frame


def of_cluster(session: Session, *, labels: Sequence[str] = (), states: Sequence[str] = ()) -> Picture:
    """The cluster as it is now, with some of its jobs. Raises UsageError."""
    return partial(frame, board(session, labels=labels, states=states))


def of_job(output: Output, session: Session, job: str, *, everything: bool = False) -> Picture:
    """One job as it is now; `everything`: each of its tasks. Raises NotFoundError."""
    return partial(_job_frame, output, job_status(session, job), everything)


def _job_frame(
    output: Output, status: JobStatus, everything: bool, moment: Moment, width: int, height: int
) -> list[Text]:
    """As much of what `iris status JOB` says as there is room for."""
    console = output.console
    options = console.options.update(width=width, height=None)
    lines = [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for line in console.render_lines(job_tables(status, width, everything=everything), options, pad=False)
    ]
    if moment.trouble:
        lines.insert(0, Text(f"no cycle: {clean_line(moment.trouble)}", style="bold yellow"))
    if len(lines) > height:
        lines = [
            *lines[: height - 1],
            Text(f"{len(lines) - height + 1} more lines: iris status {status.job.id}"),
        ]
    for line in lines:
        line.truncate(max(1, width), overflow="ellipsis")
    return lines
