"""`iris demo`: a tour of iris on a cluster of local hosts."""

from pathlib import Path
from typing import Annotated

from iris_cli.cli.command_types import Context, flag, option
from iris_cli.demo import run, slurm_tour
from iris_cli.errors import UsageError

EXAMPLES = """
iris demo  # takes a minute, cleans up
iris demo --keep  # keep the cluster running
iris demo --stop
sudo iris demo --slurm  # on Debian with slurm-wlm and munge
"""


def demo(
    iris: Context,
    keep: Annotated[bool, flag("--keep", "Leave the cluster running.")] = False,
    stop: Annotated[bool, flag("--stop", "Stop a cluster that was kept.")] = False,
    directory: Annotated[Path | None, option("DIR", "Directory of the cluster.", "--dir")] = None,
    slurm: Annotated[
        bool, flag("--slurm", "Start a Slurm on this machine and use its allocations; needs root.")
    ] = False,
) -> None:
    """Show a tour on a cluster of local SSH hosts.

    Needs no account, and no root except for --slurm.
    """
    output = iris.output
    if slurm:
        if keep or stop or directory is not None:
            raise UsageError("--slurm can't be combined with --keep, --stop or --dir")
        slurm_tour.run(output)
        return
    if not stop:
        run.run(output, directory, keep=keep)
        return
    ended = run.stop(output, directory or run.DEFAULT_DIRECTORY)
    if output.as_json:
        output.document(run.EndedDocument(ended))
    else:
        output.done(f"ended {ended} hosts")
