"""Arguments and options of commands, and those that several commands have."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from iris_cli.cli import complete
from iris_cli.cli.command_types import index


def argument(metavar: str, text: str, offer: complete.Callback | None = None, **settings: Any) -> Any:
    """An argument: the word for it in the usage, its help, and what the shell offers for it."""
    return option(metavar, text, offer=offer, kind=typer.Argument, **settings)


def flag(names: str, text: str, **settings: Any) -> Any:
    """An option without a value: its names, and its help."""
    return typer.Option(*names.split(), help=text, **settings)


def option(
    value: str,
    text: str,
    *names: str,
    offer: complete.Callback | None = None,
    kind: Callable[..., Any] = typer.Option,
    show_default: bool = False,
    **settings: Any,
) -> Any:
    """An option: the word for its value, its help, its names (default: that of the parameter), and what is offered."""
    return kind(*names, metavar=value, help=text, autocompletion=offer, show_default=show_default, **settings)


WorkerName = Annotated[str, argument("WORKER", "Worker id.", complete.WORKER)]
Ranks = Annotated[list[int] | None, option("N", "Only this rank; may be repeated.", parser=index)]
Labels = Annotated[
    list[str] | None,
    option("NAME[=VALUE]", "Only jobs with this label; may be repeated.", offer=complete.LABEL),
]
States = Annotated[
    list[str] | None,
    option(
        "STATE",
        "Only jobs in this state, such as running or retrying; may be repeated.",
        offer=complete.STATE,
    ),
]
