"""Build the program `iris` for tasks: a few lines of sh that find a Python, then Python source."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from iris_cli.remote.inside import values

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
_PARTS: dict[str, tuple[str, ...]] = {
    "errors": ("IntEnum", "ExitCode", "IrisError", "UsageError"),
    "core.ids": ("clip",),
    "core.text": (),
    "core.units": (),
    "core.each_line": (),
    "remote.inside.requests": (),
    "remote.inside.output": (),
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
    literals = (f"{name} = {getattr(values, name)!r}" for name in values.__all__)
    statements = (each for name, chosen in _PARTS.items() for each in _statements(name, chosen))
    return _LAUNCHER + "\n".join([*literals, *statements])


def _statements(name: str, chosen: Sequence[str]) -> Iterator[str]:
    """Yield the source of each statement of a module except docstrings and imports from this package."""
    package, _, file = f"iris_cli.{name}".rpartition(".")
    source = (resources.files(package) / f"{file}.py").read_text("utf-8")
    for node in ast.parse(source).body:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.Expr) or module.startswith(("__future__", "iris_cli.")):
            continue
        names = {getattr(node, "name", ""), *(each.name for each in getattr(node, "names", ()))}
        if not chosen or not names.isdisjoint(chosen):
            yield ast.get_source_segment(source, node) or ""
