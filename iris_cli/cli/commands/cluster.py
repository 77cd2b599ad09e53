"""`iris cluster ...`: import slices and hosts into cluster.yaml."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from iris_cli.cli import consent
from iris_cli.cli.command_types import Context, argument, flag, option
from iris_cli.errors import ConfigError, NotFoundError, UsageError

if TYPE_CHECKING:
    from iris_cli.ops.setup.cluster_import.run import OldMachine, Proposal

HELP = "Import hosts and slices into cluster.yaml."
EXAMPLES = """
gcloud compute tpus tpu-vm list --zone us-central2-b --format json | iris cluster import --from -
iris cluster import --from tpus.json --prune --dry-run
iris cluster import --from ssh-config 'tpu-*'
iris cluster import 'cpu-[0-3]' me@gpu0.example.org v4a=v4-32:10.0.0.[1-4]
"""
COMMANDS = {"import": EXAMPLES}


Names = Annotated[
    list[str] | None,
    argument(
        "[HOST|NAME=TYPE:HOST,...]...",
        "Hosts, with ranges like v4a-w-[0-3]; with --from: names or patterns to import.",
    ),
]
Source = Annotated[
    str,
    option(
        "gcp|ssh-config|FILE|-",
        "gcp: Google's API; FILE: gcloud's JSON, an SSH configuration or a list of hosts; -: standard input.",
        "--from",
    ),
]
Address = Annotated[
    str, option("internal|external", "Addresses of VMs to write (default: as in the file, else internal).")
]


def import_(
    iris: Context,
    names: Names = None,
    source: Source = "",
    address: Address = "",
    project: Annotated[str, option("NAME", "Google Cloud project.")] = "",
    zone: Annotated[str, option("NAME", "Zone of the slices.")] = "",
    prune: Annotated[
        bool, flag("--prune", "Remove slices that were imported and are no longer listed.")
    ] = False,
    yes: Annotated[bool, flag("--yes", "Write cluster.yaml and forget old VMs without asking.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Show the changes; write nothing.")] = False,
) -> None:
    """Import slices and hosts into cluster.yaml.

    From gcloud's list, an SSH configuration or a list of hosts. Shows the changes before it writes them. The
    rest of the file, with its comments, is not changed.
    """
    from iris_cli.core.text import one_of
    from iris_cli.ops.setup.cluster_import.plan import Addresses
    from iris_cli.ops.setup.cluster_import.run import propose
    from iris_cli.ops.setup.cluster_import.source import read_source
    from iris_cli.render import imported as render

    source = source or _default_source(names)
    found = read_source(source, names or [], iris.clock, home=Path.home(), project=project, zone=zone)
    wanted = Addresses(one_of(address, Addresses)) if address else None
    proposal = propose(_target(iris), found, wanted, prune=prune, home=Path.home())
    machines = _old_machines(iris, proposal)
    if not iris.output.as_json and (not (iris.output.quiet and yes) or dry_run):
        render.show_proposal(iris.output, proposal, machines, prune=prune)
    written = _write(iris, proposal, machines, yes=yes, dry_run=dry_run)
    forgotten = _forget(iris, proposal, machines) if written else []
    if iris.output.as_json:
        iris.output.document(render.import_document(proposal, machines, written=written, forgotten=forgotten))
    elif written:
        render.show_next(iris.output, proposal)


def _write(
    iris: Context, proposal: "Proposal", machines: "list[OldMachine]", *, yes: bool, dry_run: bool
) -> bool:
    """Write the file if it changes and the user agrees. Return whether it was written."""
    from iris_cli.ops.setup.cluster_import.run import edit_error
    from iris_cli.render.imported import show_written

    if proposal.by_hand:
        raise edit_error(proposal)
    if dry_run or not proposal.diff:
        return False
    question = f"Write {proposal.path}{_forget_words(machines)}?"
    consent.require(iris, question, yes=yes, action="write", refusal="nothing was written")
    proposal.write()
    if not iris.output.as_json:
        show_written(iris.output, proposal)
    return True


def _default_source(names: list[str] | None) -> str:
    if names:
        return ""
    if not sys.stdin.isatty():
        return "-"
    raise UsageError(
        "no source to import from",
        hint="gcloud compute tpus tpu-vm list --zone ZONE --format json | iris cluster import --from -",
    )


def _target(iris: Context) -> Path:
    """Return the path of the configuration file; if there is none yet, the path of the file to create."""
    from iris_cli.config.load import FILE_NAME

    try:
        return iris.config_file
    except ConfigError:
        return Path.cwd() / (iris.config_path or os.environ.get("IRIS_CONFIG") or FILE_NAME)


def _old_machines(iris: Context, proposal: "Proposal") -> "list[OldMachine]":
    """Return the workers in the log whose slices were re-created."""
    from iris_cli.ops.setup.cluster_import.run import old_machines

    if not proposal.plan.recreated:
        return []
    try:
        return old_machines(iris.session("iris cluster import").view(), proposal.plan.recreated)
    except NotFoundError:  # no log yet
        return []


def _forget_words(machines: "list[OldMachine]") -> str:
    from iris_cli.render.tables import fold

    old = [each.worker for each in machines if each.kept is None]
    return f" and forget the old VMs of {fold(old)}, with their host keys and attempts" if old else ""


def _forget(iris: Context, proposal: "Proposal", machines: "list[OldMachine]") -> "list[OldMachine]":
    """Forget the old machines, and return the machines that were forgotten. The user has already agreed."""
    from iris_cli.ops.setup.cluster_import.run import forget
    from iris_cli.render.imported import show_forgotten

    if all(each.kept is not None for each in machines):
        return []
    iris.config = proposal.config
    done = forget(iris.session("iris cluster import"), proposal.plan.recreated)
    iris.transport.forget_keys({each.worker for each in done})
    if done and not iris.output.as_json:
        show_forgotten(iris.output, done)
    return done
