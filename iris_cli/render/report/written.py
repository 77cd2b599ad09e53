"""What `iris report` says of the page that it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.units import count, format_memory
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.views.report import Report
from iris_cli.render.console import Output
from iris_cli.render.tables import clock_time


class WrittenDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris report --html`. `size` in bytes; `older` counts jobs that are not listed."""

    file: Path
    size: int
    jobs: int
    older: int
    workers: int
    messages: Sequence[str]
    log_damage: Damage | None


def show_written(output: Output, report: Report, path: Path, size: int) -> None:
    """Show in one line what the page has."""
    output.warnings(report.messages)
    if output.as_json:
        output.document(
            WrittenDocument(
                file=path,
                size=size,
                jobs=len(report.jobs),
                older=report.older,
                workers=len(report.workers),
                messages=report.messages,
                log_damage=report.log_damage,
            )
        )
    else:
        jobs, workers = count(len(report.jobs), "job"), count(len(report.workers), "worker")
        output.done(
            f"wrote {path}: {jobs} on {workers} since {clock_time(report.since)} UTC, {format_memory(size)}"
        )
