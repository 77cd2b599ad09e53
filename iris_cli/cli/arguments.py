"""Arguments and options that several commands have, with the same words."""

from typing import Annotated

import typer

from iris_cli.cli import complete
from iris_cli.cli.command_types import index

WorkerName = Annotated[
    str,
    typer.Argument(metavar="WORKER", autocompletion=complete.WORKER, help="Worker id.", show_default=False),
]
Ranks = Annotated[
    list[int] | None,
    typer.Option(metavar="N", help="Only this rank; may be repeated.", parser=index, show_default=False),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=VALUE]",
        autocompletion=complete.LABEL,
        help="Only jobs with this label; may be repeated.",
        show_default=False,
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATE",
        autocompletion=complete.STATE,
        help="Only jobs in this state, such as running or retrying; may be repeated.",
        show_default=False,
    ),
]
