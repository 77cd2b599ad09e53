"""Command lines that end with somebody else's: `iris launch [OPTIONS] -- COMMAND...`."""

from __future__ import annotations

from typing import Any

import typer

from iris_cli.cli.command_types import Command

_COMMAND = "iris.command"


class CommandAfterDashes(Command):
    """What follows `--` is a command, whatever it looks like."""

    command_metavar = "-- COMMAND..."

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), self.command_metavar]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
            args = args[:cut]
        return super().parse_args(ctx, args)


class CommandMayFollow(CommandAfterDashes):
    """The same where it may be left out."""

    command_metavar = "[-- COMMAND...]"


def command_of(context: typer.Context) -> tuple[str, ...]:
    """What followed `--`, if anything did."""
    command: tuple[str, ...] = context.meta.get(_COMMAND, ())
    return command
