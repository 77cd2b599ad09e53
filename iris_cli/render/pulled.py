"""What was fetched of each attempt, and what is missing."""

from __future__ import annotations

from typing import Any

from iris_cli.core.units import count, format_memory
from iris_cli.ops.pull import Pulled, PulledAttempt
from iris_cli.render.console import Output


def show(output: Output, found: Pulled) -> None:
    """A line for each attempt, and below them whatever is missing, by name."""
    for message in found.messages:
        output.message(message)
    if output.as_json:
        output.document(_document(found))
        return
    if output.quiet:
        for row in found.attempts:
            output.line(str(row.directory))
        return
    if not found.attempts:
        output.line(f"nothing of {found.job} was started yet: there is nothing to fetch")
        return
    from iris_cli.render.tables import NARROW, table

    only = ("ATTEMPT", "FETCHED", "MISSING") if output.width < NARROW else ()
    headers = ("ATTEMPT", "WORKER", "FETCHED", "UNCHANGED", "LOGS", "MISSING")
    output.show(table(headers, map(_cells, found.attempts), only=only))
    for row in found.attempts:
        for problem in row.problems:
            output.message(f"{row.attempt}: {problem}")
        for note in row.notes:
            output.message(f"{row.attempt}: {note}")
    files = sum(row.files for row in found.attempts)
    size = sum(row.bytes + row.log_bytes for row in found.attempts)
    output.line(f"{count(files, 'file')}, {format_memory(size)} with the logs, in {found.directory}")


def _cells(row: PulledAttempt) -> tuple[str, ...]:
    missing = "no answer" if row.silent else "yes" if row.problems else ""
    return (
        f"task-{row.attempt.task.index}/attempt-{row.attempt.number}",
        row.worker,
        f"{count(row.files, 'file')}, {format_memory(row.bytes)}" if row.files else "",
        str(row.unchanged) if row.unchanged else "",
        format_memory(row.log_bytes) if row.log_bytes else "",
        missing,
    )


def _document(found: Pulled) -> dict[str, Any]:
    """Sizes in bytes."""
    return {
        "job": found.job,
        "directory": str(found.directory),
        "attempts": [
            {
                "attempt": str(row.attempt),
                "worker": row.worker,
                "directory": str(row.directory),
                "files": row.files,
                "bytes": row.bytes,
                "unchanged": row.unchanged,
                "log_bytes": row.log_bytes,
                "notes": list(row.notes),
                "problems": list(row.problems),
                "silent": row.silent,
            }
            for row in found.attempts
        ],
        "messages": list(found.messages),
    }
