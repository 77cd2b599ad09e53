"""Command lines that end with somebody else's: `iris launch [OPTIONS] -- COMMAND...`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

_COMMAND = "iris.command"


class CommandAfterDashes(TyperCommand):
    """What follows `--` is a command, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
            args = args[:cut]
        return super().parse_args(ctx, args)


def command_of(context: typer.Context) -> tuple[str, ...]:
    """What followed `--`, if anything did."""
    command: tuple[str, ...] = context.meta.get(_COMMAND, ())
    return command
