"""Writes the program `iris` of tasks: a few lines of sh that find a Python, then Python."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from functools import cache
from importlib import resources

from iris_cli.remote.inside import values

_PYTHONS = " ".join(["python3", "python", *(f"python3.{minor}" for minor in range(20, 7, -1))])
# For Python the lines of sh are a string. -I: neither the directory nor the environment of a task adds a module.
_LAUNCHER = f'''\
#!/bin/sh
""":"
for python in {_PYTHONS}; do
"$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1 &&
exec "$python" -I -S -X utf8 "$0" "$@"
done
echo "error: no Python 3.8 or newer in PATH: iris needs it inside a task" >&2
exit 2
":"""
from __future__ import annotations
'''


_LOCK = threading.Lock()


def task_program() -> str:
    """The text of the program, without a line feed at its end. Safe to call from several threads."""
    with _LOCK:  # `ast.parse` of Python 3.11 fails if another thread is in it, and `cache` lets several in
        return _rendered()


@cache
def _rendered() -> str:
    return (_LAUNCHER + "".join(f"{each}\n" for each in _statements("program", set()))).rstrip("\n")


def _statements(name: str, done: set[str]) -> Iterator[str]:
    """The text of each statement of a module, after those of the modules that it imports from this package.

    Imported values become literals. `done` has the modules that came before. Decorators at the top level are lost.
    """
    source = (resources.files("iris_cli.remote.inside") / f"{name}.py").read_text("utf-8")
    for node in ast.parse(source).body:
        package, _, imported = (node.module or "" if isinstance(node, ast.ImportFrom) else "").rpartition(".")
        if package != __package__:
            if imported != "__future__" and not isinstance(node, ast.Expr):
                yield ast.get_source_segment(source, node) or ""
        elif imported == "values" and isinstance(node, ast.ImportFrom):
            yield from (f"{each.name} = {getattr(values, each.name)!r}" for each in node.names)
        elif imported not in done:
            done.add(imported)
            yield from _statements(imported, done)
