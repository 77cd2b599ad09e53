"""`iris status`: the cluster with its jobs, or one job with its tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from iris_cli.cli import complete, quick
from iris_cli.cli.arguments import Labels, States
from iris_cli.cli.commands import Commands

_EXAMPLES = """
iris status  # the cluster and its jobs
iris status train  # one job: where it runs, or why it doesn't
iris status train --at 2h  # as it was two hours ago
iris status --state running --label team=vision
"""


def register(app: Commands) -> None:
    app.command(epilog=_EXAMPLES)(status)


def status(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            autocompletion=complete.JOB,
            show_default=False,
            help="Show this job alone.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="As of then: an ISO time (UTC), or an age such as 2h.", show_default=False
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on looking: a live screen, or lines of changes.")
    ] = False,
    label: Labels = None,
    state: States = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also jobs that ended long ago; every task in a line of its own.")
    ] = False,
) -> int:
    """Show the cluster and its jobs, or one job. Instant: no network, no lock."""
    return quick.status(
        context.obj, job, at=at, watch=watch, labels=label or (), states=state or (), everything=everything
    )
