"""Print an exported job, and notes on fields without a counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import JobId
from iris_cli.ops.export.counterparts import Engine, ExportNote
from iris_cli.ops.export.export import Export, note_line
from iris_cli.render.console import Output


class ExportDocument(Struct, frozen=True, kw_only=True):
    """A job in another engine's format.

    `text` is the JobSet or the batch script. `file` is the path of the written file; null if no file was written. A
    note with `lost` is about a field without a counterpart. Any other note names a necessary step before the job can
    run.
    """

    job: JobId
    to: Engine
    text: str
    file: Path | None
    notes: Sequence[ExportNote]


def show_export(output: Output, export: Export, file: Path | None) -> None:
    """Print the text alone on stdout, or the path of its file; print the notes on stderr."""
    if output.as_json:
        document = ExportDocument(
            job=export.job, to=export.engine, text=export.text, file=file, notes=export.notes
        )
        output.document(document)
        return
    output.warnings(map(note_line, export.notes))
    if file is None:
        output.text(export.text)
    else:
        output.done(f"wrote {file}")
