"""What was fetched of each attempt, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iris_cli.core.ids import AttemptId
from iris_cli.core.units import count, format_memory
from iris_cli.ops.files.pull import Pulled, PulledAttempt
from iris_cli.render.console import Output
from iris_cli.render.fold import fold


def show(output: Output, found: Pulled) -> None:
    """A line for each attempt, and below them whatever is missing, by name."""
    output.warnings(found.messages)
    if output.as_json:
        output.document(found)
        return
    if output.quiet:
        for row in found.attempts:
            output.line(str(row.directory))
        for line in _told([row for row in found.attempts if row.problems]):
            output.warning(line)
        return
    if not found.attempts:
        output.line(f"no task of {found.job} has started yet: nothing to fetch")
        return
    from iris_cli.render.tables import NARROW, table

    only = ("ATTEMPT", "FETCHED", "MISSING") if output.width < NARROW else ()
    headers = ("ATTEMPT", "WORKER", "FETCHED", "UNCHANGED", "LOGS", "MISSING")
    output.show(table(headers, map(_cells, found.attempts), only=only))
    for line in _told(found.attempts):
        output.message(line)
    files = sum(row.files for row in found.attempts)
    size = sum(row.bytes + row.log_bytes for row in found.attempts)
    output.line(f"{count(files, 'file')}, {format_memory(size)} with the logs, in {found.directory}")


def _told(rows: Sequence[PulledAttempt]) -> Iterator[str]:
    """What is missing and what else there is to know; once, where it is the same of many."""
    alike: dict[tuple[str, bool], list[PulledAttempt]] = {}
    for row in rows:
        for words in (*row.problems, *row.notes):
            alike.setdefault((words, row.silent), []).append(row)
    for (words, silent), those in alike.items():
        who = f"no answer from {fold(row.worker for row in those)}: " if silent else ""
        yield f"{_names([row.attempt for row in those])}: {who}{words}"


def _names(attempts: Sequence[AttemptId]) -> str:
    """`train/task-[0-3]/attempt-0`."""
    tasks: dict[int, list[str]] = {}
    for attempt in attempts:
        tasks.setdefault(attempt.number, []).append(str(attempt.task))
    return ", ".join(f"{fold(those)}/attempt-{number}" for number, those in tasks.items())


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
