"""Show a job that was exported: the file, or where it is, and what it does not keep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import JobId
from iris_cli.ops.export.counterparts import Engine, ExportNote
from iris_cli.ops.export.export import Export, told
from iris_cli.render.console import Output


class ExportDocument(Struct, frozen=True, kw_only=True):
    """A job as another engine runs it.

    `text` is the JobSet or the batch script; `file` is where it was written to, null if it was only printed. A note
    that is `lost` is about a field without a counterpart, any other about what to do before the job can run there.
    """

    job: JobId
    to: Engine
    text: str
    file: Path | None
    notes: Sequence[ExportNote]


def show_export(output: Output, export: Export, file: Path | None) -> None:
    """Print the text alone on stdout unless it was written to a file, and the notes on stderr."""
    if output.as_json:
        document = ExportDocument(
            job=export.job, to=export.engine, text=export.text, file=file, notes=export.notes
        )
        output.document(document)
        return
    output.warnings(map(told, export.notes))
    if file is None:
        output.text(export.text)
    else:
        output.done(f"wrote {file}")
