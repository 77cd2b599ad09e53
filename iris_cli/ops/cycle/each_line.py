"""The lines of `--each-line`: named in the log by their hash, kept in the state directory, read at dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from iris_cli.core.model.job import Job, JobRequest, Lines
from iris_cli.errors import IrisError
from iris_cli.journal.state_dir import StateDir


def text_of(lines: Sequence[str]) -> bytes:
    """The lines as they are kept."""
    return "".join(f"{line}\n" for line in lines).encode()


def with_lines(request: JobRequest) -> JobRequest:
    """The request, with what the log will say of its lines."""
    if request.each_line is None:
        return request
    from hashlib import sha256

    text = text_of(request.each_line)
    return replace(
        request, lines=Lines(hash=sha256(text).hexdigest(), count=len(request.each_line), size=len(text))
    )


def line_of(state: StateDir, job: Job, index: int) -> str | None:
    """The line of the task with that index; None if the job has none. Raises ValueError if the file is gone."""
    if job.each_line is None:
        return None
    try:
        return _lines(state, job.each_line.hash)[job.indexes[index]]
    except IrisError as error:
        raise ValueError(f"its lines are gone: {error.message}") from error


@lru_cache(maxsize=4)
def _lines(state: StateDir, digest: str) -> tuple[str, ...]:
    """Read once for all tasks; no content but this can have that hash."""
    import gzip  # slow to load, and for few jobs

    with state.lines.open(digest) as file:
        return tuple(gzip.decompress(file.read()).decode().split("\n"))
