"""Whether cycles run by themselves, and how that was seen last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.units import format_duration
from iris_cli.ops.checks.findings import Finding
from iris_cli.ops.loop.cron.entry import last_lines
from iris_cli.ops.views.view import CycleAge
from iris_cli.render.console import Output


class InstalledDocument(Struct, frozen=True):
    """The result of `iris cron install`. `changed` is false if it was installed before."""

    installed: str
    changed: bool
    warnings: Sequence[str]


class RemovedDocument(Struct, frozen=True):
    """The result of `iris cron remove`: what was removed."""

    removed: Sequence[str]


class CronDocument(Struct, frozen=True):
    """The result of `iris cron show`. `crontab` and `systemd` are empty if not installed there.

    `last_cycle_age` is in seconds; `output` is the end of cron's log.
    """

    crontab: str
    systemd: str
    last_cycle_age: float | None
    stale: bool
    output: Sequence[str]


def show_installed(
    output: Output, where: str, *, changed: bool, keys: Sequence[Finding], lacking: Sequence[Finding]
) -> None:
    """`keys`: what is wrong with them without an agent; `lacking`: variables that are set here only."""
    for finding in keys:
        output.message(f"cron has no SSH agent: {finding.text}; {finding.fix}".rstrip("; "))
    for finding in lacking:
        output.message(f"{finding.text}; if it is needed: {finding.fix}")
    if output.as_json:
        warnings = [each.text for each in (*keys, *lacking)]
        output.document(InstalledDocument(where, changed, warnings))
        return
    output.done(f"{'installed' if changed else 'there already'}: {where}")
    output.done("next: iris cron show, a minute from now")


def show_removed(output: Output, removed: Sequence[str]) -> None:
    if output.as_json:
        output.document(RemovedDocument(removed))
        return
    output.done(f"removed: {', '.join(removed)}" if removed else "there was nothing to remove")


def show(output: Output, found: dict[str, str], cycle: CycleAge, log: Path) -> None:
    """What is installed, the last cycle, and the end of its output."""
    said = last_lines(log)
    if output.as_json:
        output.document(CronDocument(found["crontab"], found["systemd"], cycle.age, cycle.stale, said))
        return
    for where, what in found.items():
        if what:
            output.line(f"{where}: {what}")
    if not any(found.values()):
        output.line("not installed: iris cron install --every 1m")
    ago = f"{format_duration(cycle.age)} ago" if cycle.age is not None else "never"
    output.line(f"last cycle: {ago}" + (" (late)" if cycle.stale else ""))
    for each in said:
        output.line(f"  {each}")
