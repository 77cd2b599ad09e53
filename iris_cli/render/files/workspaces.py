"""The directory that goes with a job: in one line, or what of it would be shipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.core.units import count, format_memory
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.core.model.job import Workspace
    from iris_cli.ops.workspace.entries import Listing


class ShippedFile(Struct, frozen=True):
    """One file, or a link to `target`. `size` in bytes."""

    name: str
    size: int
    executable: bool
    target: str | None


class ShippedDirectory(Struct, frozen=True):
    """The directory that `iris launch` would ship. `size`: bytes of the tar file."""

    directory: Path
    chosen_by: str
    size: int
    files: Sequence[ShippedFile]


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


def document(listing: Listing) -> ShippedDirectory:
    """The same with every file."""
    files = [ShippedFile(each.name, each.size, each.executable, each.target) for each in listing.entries]
    return ShippedDirectory(listing.directory, listing.by, listing.size, files)
