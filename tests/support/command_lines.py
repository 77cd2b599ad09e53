"""Parse command lines with the real parser, without running them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from iris_cli.cli import app, tree
from iris_cli.cli.command_types import Group


def root() -> Any:
    """Return the tree of commands."""
    return tree.parser(tree.COMMANDS)


def commands(path: str = "iris", command: Any = None) -> Iterator[tuple[str, Any]]:
    """Every command and group below the root, by what is typed for it."""
    command = command or root()
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from commands(f"{path} {name}", child)


def parsed(line: str) -> Any:
    """Return the context of the command in a line of shell. Raises TyperException if it is invalid."""
    words = shlex.split(line, comments=True)
    words = words[words.index("iris") + 1 :]  # maybe after a pipe
    ends = [words.index(each) for each in ("|", "&&", ">") if each in words]
    context = root().make_context("iris", app.move_global_options(words[: min(ends, default=None)]))
    while isinstance(context.command, Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context
