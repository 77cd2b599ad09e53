"""`iris config ...`: the configuration file."""

from __future__ import annotations

import typer

from iris_cli.cli.context import Context
from iris_cli.errors import ConfigError, ExitCode


def register(app: typer.Typer) -> None:
    group = typer.Typer(name="config", help="Check cluster.yaml.", no_args_is_help=True)
    group.callback()(_group)
    group.command(epilog="Example:  iris config validate --config lab.yaml")(validate)
    app.add_typer(group)


def _group() -> None:
    """Without this a group of one command would be that command."""


def validate(context: typer.Context) -> int:
    """Check cluster.yaml, every problem at once. Asks no host."""
    from iris_cli.render.config_health import show_problems, show_valid

    iris: Context = context.obj
    try:
        config = iris.config
    except ConfigError as error:
        if not iris.output.as_json:
            raise
        show_problems(iris.output, error)
        return ExitCode.CONFIG
    show_valid(iris.output, config)
    return ExitCode.OK
