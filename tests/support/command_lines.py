"""Command lines as the real parser reads them; none is run."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import typer

from iris_cli.cli import app, tree
from iris_cli.cli.command_types import Group


@cache
def root() -> Any:
    """The whole tree of commands."""
    return typer.main.get_command(tree.build((*app.COMMANDS, *app.SETUP_COMMANDS)))


def parsed(line: str) -> Any:
    """The context of the command that a line of a shell runs. Raises TyperException if it can't be read."""
    words = shlex.split(line, comments=True)
    words = words[words.index("iris") + 1 :]  # behind a pipe, perhaps
    ends = [words.index(each) for each in ("|", "&&", ">") if each in words]
    context = root().make_context("iris", app.hoist(words[: min(ends, default=None)]))
    while isinstance(context.command, Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context
