"""What is left of work that is over, in bytes, and what became of it."""

from __future__ import annotations

from typing import Any

from iris_cli.core.units import count, format_memory
from iris_cli.ops.gc import Garbage, WorkerFiles
from iris_cli.render.as_json import plain
from iris_cli.render.console import Output
from iris_cli.render.fold import by_words, fold


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
        output.line("nothing is left of what is over")


def show_removed(output: Output, found: Garbage) -> None:
    """What is gone, what takes longer, and what could not be removed."""
    told = ((row.worker, row.problem or _still_there(row)) for row in found.workers)
    for names, words in by_words(each for each in told if each[1]):
        output.failed(f"{fold(names)}: {words}")
    for file in found.files:
        if file.problem:
            output.failed(f"{file.path}: {file.problem}")
    output.done(f"removed {format_memory(_removed(found))}")


def document(found: Garbage) -> dict[str, Any]:
    return {
        "workers": [
            {
                "worker": row.worker,
                "attempts": [str(each) for each in row.sizes],
                "bytes": row.bytes,
                "cache_bytes": row.caches,
                "removed": [str(each) for each in row.removed],
                "left": [str(each) for each in row.left],
                "problem": row.problem,
            }
            for row in found.workers
        ],
        "files": [
            {
                "path": str(file.path),
                "what": file.what,
                "bytes": file.bytes,
                "removed": file.removed,
                "problem": file.problem,
            }
            for file in found.files
        ],
        "bytes": found.bytes,
        "bytes_removed": _removed(found),
        "messages": list(found.messages),
        "log_damage": plain(found.log_damage),
    }


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
