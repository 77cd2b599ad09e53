"""Print an exported job, and notes on fields without a counterpart."""

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from iris_cli.ops.export.export import Export, note_line
from iris_cli.render.console import Output


class ExportDocument(Struct, frozen=True):
    """A job in another engine's format.

    `text` is the JobSet or the batch script. `file` is the path of the written file; null if no file was written. A
    note with `lost` is about a field without a counterpart. Any other note names a necessary step before the job can
    run.
    """

    FLATTENED: ClassVar = ("export",)
    export: Export
    file: Path | None


def show_export(output: Output, export: Export, file: Path | None) -> None:
    """Print the text alone on stdout, or the path of its file; print the notes on stderr."""
    if output.as_json:
        output.document(ExportDocument(export, file))
        return
    output.warnings(map(note_line, export.notes))
    if file is None:
        output.lines(export.text)
    else:
        output.done(f"wrote {file}")
