"""What is left of work that is over, in bytes, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import AttemptId, WorkerId
from iris_cli.core.units import count, format_memory
from iris_cli.journal.log.recovery import Damage
from iris_cli.ops.files.gc import Garbage, WorkerFiles
from iris_cli.render.console import Output
from iris_cli.render.fold import by_words, fold


class WorkerGarbage(Struct, frozen=True):
    """What ended attempts left on one worker. `left` takes longer to remove; `problem` is why nothing is known."""

    worker: WorkerId
    attempts: Sequence[AttemptId]
    bytes: int
    cache_bytes: int
    removed: Sequence[AttemptId]
    left: Sequence[AttemptId]
    problem: str


class FileGarbage(Struct, frozen=True):
    """A file of the state directory that is no longer needed."""

    path: Path
    what: str
    bytes: int
    removed: bool
    problem: str


class GarbageDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris gc`: everything found, and how much of it was removed."""

    workers: Sequence[WorkerGarbage]
    files: Sequence[FileGarbage]
    bytes: int
    bytes_removed: int
    messages: Sequence[str]
    log_damage: Damage | None


def show(output: Output, found: Garbage) -> None:
    """Each worker and each file with its bytes, and their sum."""
    output.warnings(found.messages)
    for names, words in by_words((row.worker, row.problem) for row in found.workers if row.problem):
        output.line(f"{fold(names)}: {words}")
    for names, words in by_words((row.worker, _size(row)) for row in found.workers if not row.problem):
        output.line(f"{fold(names)}: {'each ' if len(names) > 1 else ''}{words}")
    for file in found.files:
        output.line(f"{file.path}: {file.what}, {format_memory(file.bytes)}")
    if found.workers or found.files:
        output.line(f"in all: {format_memory(found.bytes)}")
    else:
        output.line("no files of ended work are left")


def show_removed(output: Output, found: Garbage) -> None:
    """What is gone, what takes longer, and what could not be removed."""
    told = ((row.worker, row.problem or _still_there(row)) for row in found.workers)
    for names, words in by_words(each for each in told if each[1]):
        output.failed(f"{fold(names)}: {words}")
    for file in found.files:
        if file.problem:
            output.failed(f"{file.path}: {file.problem}")
    output.done(f"removed {format_memory(_removed(found))}")


def document(found: Garbage) -> GarbageDocument:
    return GarbageDocument(
        workers=[
            WorkerGarbage(
                row.worker, list(row.sizes), row.bytes, row.caches, row.removed, row.left, row.problem
            )
            for row in found.workers
        ],
        files=[
            FileGarbage(file.path, file.what, file.bytes, file.removed, file.problem) for file in found.files
        ],
        bytes=found.bytes,
        bytes_removed=_removed(found),
        messages=found.messages,
        log_damage=found.log_damage,
    )


def _still_there(row: WorkerFiles) -> str:
    left = count(len(row.left), "attempt")
    return f"{left} still being removed: see again later" if row.left else ""


def _size(row: WorkerFiles) -> str:
    attempts = f"{count(len(row.sizes), 'ended attempt')}, {format_memory(row.bytes - row.caches)}"
    if not row.caches:
        return attempts
    unused = f"unused workspaces and set-ups, {format_memory(row.caches)}"
    return f"{attempts}; {unused}" if row.sizes else unused


def _removed(found: Garbage) -> int:
    files = sum(file.bytes for file in found.files if file.removed)
    return files + sum(row.bytes_removed for row in found.workers)
