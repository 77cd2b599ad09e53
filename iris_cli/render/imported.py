"""Print the changes of an import to `cluster.yaml`, and the entries it skips."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from iris_cli.core import WorkerId, count
from iris_cli.ops.setup.cluster_import.plan import Plan
from iris_cli.ops.setup.cluster_import.run import OldMachine, Proposal, ended_jobs
from iris_cli.render import layout, tables
from iris_cli.render.console import Output

_MAX_SKIPPED = 30
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Note(Struct, frozen=True):
    """A note on one imported slice or host. `name` is empty if the note is about all of them."""

    name: str
    note: str


class ImportDocument(Struct, frozen=True, kw_only=True):
    """The result of `iris cluster import`. `updated`: the changed fields of each slice or host."""

    FLATTENED: ClassVar = ("plan",)
    config: Path
    written: bool
    diff: Sequence[str]
    plan: Plan
    recreated: Sequence[str]
    removed: Sequence[str]
    notes: Sequence[Note]
    old_machines: Sequence[OldMachine]
    forgotten: Sequence[WorkerId]


def show_proposal(output: Output, proposal: Proposal, machines: Sequence[OldMachine], *, prune: bool) -> None:
    """Print the diff of cluster.yaml on stdout, and notes on stderr."""
    for line in proposal.diff:
        _show_line(output, line)
    for line in _notes(proposal.plan, machines, prune=prune):
        output.message(line)
    if not proposal.diff and not proposal.by_hand:
        output.done(_no_change_words(proposal))


def show_written(output: Output, proposal: Proposal) -> None:
    for warning in proposal.config.warnings:
        output.warning(f"warning: {warning}")
    plan = proposal.plan
    done = [
        f"{len(names)} {'entry' if len(names) == 1 else 'entries'} {what}"
        for what, names in (("added", plan.added), ("updated", plan.updated), ("removed", _removed(proposal)))
        if names
    ]
    output.done(f"wrote {proposal.path}: {', '.join(done)}")


def show_forgotten(output: Output, machines: Sequence[OldMachine]) -> None:
    output.done(f"forgot {count(len(machines), 'old VM')}: {tables.fold(each.worker for each in machines)}")


def show_next(output: Output, proposal: Proposal) -> None:
    output.done("next: iris doctor" if proposal.plan.added else "next: iris schedule --once")


def import_document(
    proposal: Proposal, machines: Sequence[OldMachine], *, written: bool, forgotten: Sequence[OldMachine]
) -> ImportDocument:
    plan = proposal.plan
    return ImportDocument(
        config=proposal.path,
        written=written,
        diff=proposal.diff,
        plan=plan,
        recreated=[each.name for each in plan.recreated],
        removed=_removed(proposal),
        notes=[Note(name, note) for name, note in plan.notes],
        old_machines=machines,
        forgotten=[each.worker for each in forgotten],
    )


def _show_line(output: Output, line: str) -> None:
    style = "" if line.startswith(("---", "+++")) else _STYLES.get(line[:1], "")
    if style and sys.stdout.isatty():
        from rich.text import Text

        # Do not wrap lines, because the output is a patch.
        output.console.print(Text(layout.clean_line(line), style), soft_wrap=True)
    else:
        output.line(line)


def _removed(proposal: Proposal) -> list[str]:
    kept = {host.slice or host.worker for host in proposal.config.hosts}
    return [name for name in proposal.plan.gone if name not in kept]


def _no_change_words(proposal: Proposal) -> str:
    number = len(proposal.plan.unchanged)
    if number:
        return f"nothing to change: {proposal.path} already has {'it' if number == 1 else f'all {number}'}"
    return "nothing to import"


def _notes(plan: Plan, machines: Sequence[OldMachine], *, prune: bool) -> Iterator[str]:
    for each in plan.skipped[:_MAX_SKIPPED]:
        yield f"skipped {each.name}: {each.why}" + (f"; {each.fix}" if each.fix else "")
    if len(plan.skipped) > _MAX_SKIPPED:
        yield f"{len(plan.skipped) - _MAX_SKIPPED} more skipped: --json lists all"
    for names, note in tables.group_by_text(plan.notes):
        yield f"{tables.fold(names)}: {note}" if any(names) else note
    for name, changes in plan.updated.items():
        if changes:
            yield f"{name}: changed {', '.join(changes)}"
    for slice_ in plan.recreated:
        yield f"{slice_.name} {slice_.how}: its VMs differ from those in cluster.yaml"
    for machine in machines:
        if machine.kept is not None:
            yield f"{machine.worker}: not forgotten, {machine.kept} was placed there since then"
    with_attempts = [each for each in machines if each.ended_attempts]
    if with_attempts:
        jobs = tables.fold(ended_jobs(with_attempts))
        attempts = count(sum(len(each.ended_attempts) for each in with_attempts), "attempt")
        yield f"{attempts} of {jobs} ran on the old VMs"
    if plan.gone and not prune:
        yield f"no longer listed: {tables.fold(plan.gone)} (--prune removes them)"
