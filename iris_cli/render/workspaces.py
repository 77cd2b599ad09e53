"""The directory that goes with a job: in one line, or what of it would be shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_cli.core.units import count, format_memory
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.core.job import Workspace
    from iris_cli.ops.workspace.entries import Listing


def workspace_words(workspace: Workspace) -> str:
    """`vision, 42 files, 1.20MiB, 0f1e2d3c4b5a`: the beginning of its hash comes last."""
    files, size = count(workspace.files, "file"), format_memory(workspace.size)
    return f"{workspace.name}, {files}, {size}, {workspace.hash[:12]}"


def show(output: Output, listing: Listing) -> None:
    """What would be shipped, and the biggest files of it."""
    from iris_cli.render.tables import table

    files = count(len(listing.entries), "file")
    output.line(
        f"would ship {listing.directory}: {files}, {format_memory(listing.size)} (chosen by {listing.by})"
    )
    rows = [(each.name, format_memory(each.size)) for each in listing.biggest]
    output.show(table(("BIGGEST", "SIZE"), rows))


def document(listing: Listing) -> dict[str, Any]:
    """The same with every file; sizes in bytes."""
    return {
        "directory": str(listing.directory),
        "chosen_by": listing.by,
        "size": listing.size,
        "files": [
            {"name": each.name, "size": each.size, "executable": each.executable, "target": each.target}
            for each in listing.entries
        ],
    }
