"""Files of which each line is the work of one task."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.each_line import split_lines
from iris_cli.core.ids import clip
from iris_cli.errors import UsageError

MOST_BYTES = 64 << 20


def read_lines(path: Path) -> tuple[str, ...]:
    """The lines of a file, as `split_lines` has them. Raises UsageError."""
    name = clip(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"{name} takes more than {MOST_BYTES >> 20} MiB", hint="split it into several jobs")
    return split_lines(str(path), data)
