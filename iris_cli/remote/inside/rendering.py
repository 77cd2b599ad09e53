"""Build the program `iris` for tasks: a few lines of sh that find a Python, then Python source."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

from iris_cli.core.messages.requests import FORMAT, MAX_LOG_PIECE, MAX_REQUEST_BYTES, MAX_WAITS
from iris_cli.core.model.array import LINE_VARIABLE, MAX_INDEXES
from iris_cli.core.model.job_fields import JOB_FIELDS, Kind
from iris_cli.core.model.variables import MAX_STRING

_PYTHONS = " ".join(["python3", "python", *(f"python3.{minor}" for minor in range(20, 7, -1))])
# To Python, the lines of sh are one string. With -I no module is imported from the task's directory or environment.
_LAUNCHER = f'''\
#!/bin/sh
""":"
for python in {_PYTHONS}; do
"$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1 &&
exec "$python" -I -S -X utf8 "$0" "$@"
done
echo "error: iris needs Python 3.8 or newer in PATH" >&2
exit 2
":"""
from __future__ import annotations
'''
OPTIONS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    flag: (row.file_key, kind, tuple(map(str, row.choices or ())))
    for row in JOB_FIELDS
    if not row.not_inside
    for flags in row.flags
    for flag, kind in zip(
        flags.split("/"), ("ON", "OFF") if row.kind is Kind.FLAG else (row.kind.name,), strict=False
    )
}
"""For each flag of `iris launch`: its key in a request, the kind of its value, and the words allowed for a choice."""
_LITERALS: Mapping[str, object] = {
    "FORMAT": FORMAT,
    "LINE_VARIABLE": LINE_VARIABLE,
    "MAX_INDEXES": MAX_INDEXES,
    "MAX_LOG_PIECE": MAX_LOG_PIECE,
    "MAX_REQUEST_BYTES": MAX_REQUEST_BYTES,
    "MAX_STRING": MAX_STRING,
    "MAX_WAITS": MAX_WAITS,
    "OPTIONS": OPTIONS,
}
"""Names that the program imports from modules which need packages. Their values become literals."""
_PARTS: dict[str, tuple[str, ...]] = {
    "errors": ("IntEnum", "ExitCode", "IrisError", "UsageError"),
    "core.ids": ("clip",),
    "core.messages.requests": ("check_no_deadlock",),
    "core.text": (),
    "core.units": (),
    "core.model.array": ("split_lines", "_decode_line", "check_line"),
    "files": ("read_limited",),
    "remote.inside.requests": (),
    "remote.inside.command_line": (),
    "remote.inside.program": (),
}
"""Modules, and the names to take from each (empty: all). Each uses only modules before it."""

_LOCK = threading.Lock()


def task_program() -> str:
    """Return the source of the program without its last newline. Thread-safe."""
    with _LOCK:  # `ast.parse` of Python 3.11 is not thread-safe
        return _rendered()


@cache
def _rendered() -> str:
    literals = (f"{name} = {value!r}" for name, value in _LITERALS.items())
    statements = (each for name, chosen in _PARTS.items() for each in _statements(name, chosen))
    return _LAUNCHER + "\n".join([*literals, *statements])


def _statements(name: str, chosen: Sequence[str]) -> Iterator[str]:
    """Yield the source of each statement of a module except docstrings and imports from this package."""
    package, _, file = f"iris_cli.{name}".rpartition(".")
    source = (resources.files(package) / f"{file}.py").read_text("utf-8")
    lines = source.split("\n")
    for node in ast.parse(source).body:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.Expr) or module.startswith(("__future__", "iris_cli.")):
            continue
        names = {getattr(node, "name", ""), *(each.name for each in getattr(node, "names", ()))}
        if not chosen or not names.isdisjoint(chosen):
            # ast.get_source_segment would split the source again for each statement: 0.2 s for all of them.
            yield "\n".join(lines[node.lineno - 1 : node.end_lineno])
