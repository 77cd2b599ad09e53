"""Print the results of `iris gc` and `iris pull`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import AttemptId, count, format_memory, group_pairs
from iris_cli.ops.files.gc import Garbage, WorkerFiles
from iris_cli.ops.files.pull import Pulled
from iris_cli.ops.files.pull_attempt import PulledAttempt
from iris_cli.render.console import Output
from iris_cli.render.tables import NARROW, fold, group_by_text, table


class WorkerGarbage(Struct, frozen=True):
    """Files of ended attempts on one worker. `left`: attempts still being removed.

    `problem`: why the files are unknown or could not be removed; '' if there is no problem.
    """

    FLATTENED: ClassVar = ("files",)
    files: WorkerFiles
    attempts: Sequence[AttemptId]
    bytes: int


class GarbageDocument(Struct, frozen=True):
    """The result of `iris gc`: all removable files, and the bytes removed."""

    FLATTENED: ClassVar = ("found",)
    found: Garbage
    workers: Sequence[WorkerGarbage]
    bytes: int
    bytes_removed: int


def show_garbage(output: Output, found: Garbage) -> None:
    """Print a line for each kind of removable files with the size, and a line for workers without an answer."""
    output.warnings(found.messages)
    for names, words in group_by_text((row.worker, row.problem) for row in found.workers if row.problem):
        output.line(f"{fold(names)}: {words}")
    for line in _totals(found):
        output.line(line)
    if found.workers or found.files:
        output.line(f"total: {format_memory(found.bytes)}")
    else:
        output.line("nothing to delete: no ended job has files")


def _totals(found: Garbage) -> Iterator[str]:
    known = [row for row in found.workers if not row.problem]
    if attempts := [row for row in known if row.sizes]:
        size = format_memory(sum(row.bytes - row.caches for row in attempts))
        ended = count(sum(len(row.sizes) for row in attempts), "ended attempt")
        yield f"{ended} on {_on_workers(attempts)}: {size}"
    if caches := [row for row in known if row.caches]:
        size = format_memory(sum(row.caches for row in caches))
        yield f"unused workspaces and set-ups on {_on_workers(caches)}: {size}"
    for paths, what in group_by_text((str(file.path), file.what) for file in found.files):
        size = format_memory(sum(file.bytes for file in found.files if file.what == what))
        where = paths[0] if len(paths) == 1 else f"{len(paths)} in {Path(paths[0]).parent}"
        yield f"{what} ({where}): {size}"


def _on_workers(rows: Sequence[WorkerFiles]) -> str:
    names = fold(row.worker for row in rows)
    return names if len(rows) == 1 else f"{count(len(rows), 'worker')} ({names})"


def show_removed(output: Output, found: Garbage) -> None:
    """Print the number of removed bytes, the attempts still being removed, and failures."""
    messages_by_worker = ((row.worker, row.problem or _remaining_words(row)) for row in found.workers)
    for names, words in group_by_text(each for each in messages_by_worker if each[1]):
        output.failed(f"{fold(names)}: {words}")
    for file in found.files:
        if file.problem:
            output.failed(f"{file.path}: {file.problem}")
    output.done(f"removed {format_memory(_removed_bytes(found))}")


def garbage_document(found: Garbage) -> GarbageDocument:
    workers = [WorkerGarbage(row, list(row.sizes), row.bytes) for row in found.workers]
    return GarbageDocument(found, workers, found.bytes, _removed_bytes(found))


def _remaining_words(row: WorkerFiles) -> str:
    left = count(len(row.left), "attempt")
    return f"still removing {left}; run `iris gc` again" if row.left else ""


def _removed_bytes(found: Garbage) -> int:
    files = sum(file.bytes for file in found.files if file.removed)
    return files + sum(row.bytes_removed for row in found.workers)


def show_pulled(output: Output, found: Pulled) -> None:
    """Print a row for each attempt, then the problems and notes of all attempts."""
    output.warnings(found.messages)
    if output.as_json:
        output.document(found)
        return
    if output.quiet:
        for row in found.attempts:
            output.line(str(row.directory))
        for line in _problem_lines([row for row in found.attempts if row.problems]):
            output.warning(line)
        return
    if not found.attempts:
        output.line(f"no task of {found.job} has started yet: nothing to pull")
        return
    only = ("ATTEMPT", "FETCHED", "NOTE") if output.width < NARROW else ()
    headers = ("ATTEMPT", "WORKER", "FETCHED", "UNCHANGED", "LOGS", "NOTE")
    output.show(table(headers, map(_cells, found.attempts), only=only, right=()))
    for line in _problem_lines(found.attempts):
        output.message(line)
    files = sum(row.files for row in found.attempts)
    size = sum(row.bytes + row.log_bytes for row in found.attempts)
    logs = count(sum(row.log_bytes > 0 for row in found.attempts), "attempt")
    output.line(
        f"fetched {count(files, 'file')} and the logs of {logs}, {format_memory(size)}, to {found.directory}"
    )


def _problem_lines(rows: Sequence[PulledAttempt]) -> Iterator[str]:
    """Yield a line for each problem and note, with the attempts that have it."""
    alike = group_pairs(((words, row.silent), row) for row in rows for words in (*row.problems, *row.notes))
    for (words, _), rows in alike.items():
        silence = rows[0].silence
        why = words if silence is None else silence.words(fold(row.worker for row in rows))
        yield f"{_attempt_names([row.attempt for row in rows])}: {why}"


def _attempt_names(attempts: Sequence[AttemptId]) -> str:
    """Return the folded names of attempts: `train/task-[0-3]/attempt-0`."""
    tasks = group_pairs((attempt.number, str(attempt.task)) for attempt in attempts)
    return ", ".join(f"{fold(rows)}/attempt-{number}" for number, rows in tasks.items())


def _cells(row: PulledAttempt) -> tuple[str, ...]:
    missing = "no answer" if row.silent else "incomplete" if row.problems else ""
    return (
        f"task-{row.attempt.task.index}/attempt-{row.attempt.number}",
        row.worker,
        f"{count(row.files, 'file')}, {format_memory(row.bytes)}" if row.files else "",
        count(row.unchanged, "file") if row.unchanged else "",
        format_memory(row.log_bytes) if row.log_bytes else "",
        missing,
    )
