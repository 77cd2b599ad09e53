"""Words, comments and variables of shell scripts, in printable characters.

Variables that only the scripts use begin with `IRIS_`, because a job can't set variables with this prefix.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby


def quoted(text: str) -> str:
    """Return the text as one word of a POSIX shell. Control characters except tab and line feed are escaped."""
    if text.replace("\t", "").replace("\n", "").isprintable():
        return shlex.quote(text)
    return "".join(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    for is_shown, letters in groupby(text, lambda letter: letter.isprintable() or letter in "\t\n"):
        piece = "".join(letters)
        octal = "".join(f"\\{byte:03o}" for byte in piece.encode())
        yield shlex.quote(piece) if is_shown else f"\"$(printf '{octal}')\""


def comment(text: str) -> str:
    """Return a one-line comment for shell scripts and YAML."""
    return "# " + "".join(letter if letter.isprintable() else "?" for letter in text)


def exports(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield lines that set variables to fixed values."""
    return (f"export {name}={quoted(value)}" for name, value in variables.items())


def computed_exports(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield lines that set variables to shell expressions. The lines add no single quotes to the expressions."""
    return (f'export {name}="{value}"' for name, value in variables.items())


def task_index_lines(indexes: Iterable[int]) -> Iterator[str]:
    """Yield lines that set IRIS_TASK_INDEX to the position of Slurm's array index SLURM_ARRAY_TASK_ID in `indexes`."""
    yield "IRIS_TASK_INDEX=0"
    yield f"for IRIS_INDEX in {' '.join(map(str, indexes))}; do"
    yield '    [ "$IRIS_INDEX" != "$SLURM_ARRAY_TASK_ID" ] || break'
    yield "    IRIS_TASK_INDEX=$((IRIS_TASK_INDEX + 1))"
    yield "done"


def array_index_lines(indexes: Iterable[int]) -> Iterator[str]:
    """Yield lines that set IRIS_ARRAY_INDEX to the element of `indexes` at the position IRIS_TASK_INDEX."""
    yield "IRIS_AT=$IRIS_TASK_INDEX"
    yield f"for IRIS_ARRAY_INDEX in {' '.join(map(str, indexes))}; do"
    yield '    [ "$IRIS_AT" != 0 ] || break'
    yield "    IRIS_AT=$((IRIS_AT - 1))"
    yield "done"
    yield "export IRIS_ARRAY_INDEX"


def each_line_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that set IRIS_EACH_LINE to the line of the task IRIS_TASK_INDEX."""
    yield "case $IRIS_TASK_INDEX in"
    yield from (f"{task}) IRIS_EACH_LINE={quoted(line)} ;;" for task, line in enumerate(lines))
    yield from ("esac", "export IRIS_EACH_LINE")
