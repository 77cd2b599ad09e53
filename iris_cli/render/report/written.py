"""What `iris report` says of the page that it wrote."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.units import count, format_memory
from iris_cli.ops.report import Report
from iris_cli.render.as_json import plain
from iris_cli.render.console import Output
from iris_cli.render.tables import clock_time


def show_written(output: Output, report: Report, path: Path, size: int) -> None:
    """Show in one line what the page has."""
    output.warnings(report.messages)
    if output.as_json:
        output.document(
            {
                "file": str(path),
                "size": size,
                "jobs": len(report.jobs),
                "older": report.older,
                "workers": len(report.workers),
                "messages": list(report.messages),
                "log_damage": plain(report.log_damage),
            }
        )
    else:
        jobs, workers = count(len(report.jobs), "job"), count(len(report.workers), "worker")
        output.done(
            f"wrote {path}: {jobs} on {workers} since {clock_time(report.since)} UTC, {format_memory(size)}"
        )
