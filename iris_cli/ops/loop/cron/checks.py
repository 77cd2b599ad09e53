"""Check that cycles are running, and that the scheduled program is this iris."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.core import Cluster, clip, format_duration
from iris_cli.errors import IrisError
from iris_cli.ops.checks.findings import Finding, failure, success, warning
from iris_cli.ops.loop.cron import crontab, timer
from iris_cli.ops.loop.cron.entry import CronEntry, last_lines
from iris_cli.ops.views.cycles import CRON, Cycles, cycles_words, fix_of, jobs_need_cycles
from iris_cli.ops.views.view import STALE_AFTER


class Installed(Struct, frozen=True, kw_only=True):
    """Installed schedule of a cluster. All fields are empty without a schedule."""

    where: str = ""  # the crontab or the name of the timer
    program: str = ""
    again: str = ""  # command that installs the schedule again
    daemon: str = ""  # command that shows the scheduler's state
    log: Path | None = None


def installed(entry: CronEntry, units: Path) -> Installed:
    """Return the schedule in the crontab or in the systemd units below `units`."""
    with suppress(IrisError):
        if line := crontab.installed(entry):
            return Installed(
                where="the crontab",
                program=crontab.program(line),
                again=_install_command(line),
                daemon="systemctl status cron crond",
                log=entry.log,
            )
    with suppress(IrisError):
        if timer.installed(entry, units):
            name, service = f"{entry.name}.timer", timer.service(entry, units)
            return Installed(
                where=name,
                program=timer.program(service),
                again=f"{_install_command(service)} --systemd",
                daemon=f"systemctl --user status {name}; journalctl --user -u {entry.name}",
            )
    return Installed()


def _install_command(schedule: str) -> str:
    """Return the command that installs a schedule again with its interval, or every minute if it has none."""
    found = re.search(r'--cron"? "?([0-9]+)', schedule)
    return f"iris cron install --every {format_duration(float(found[1]) if found else 60.0)}"


def check_cycles(
    cycles: Cycles, cluster: Cluster, found: Installed, this_command: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield findings about the runner of cycles and the installed schedule (`found`)."""
    yield from _check_program(found, this_command[0])
    for trouble in cycles.troubles:
        yield warning("cycles", f"background loop: {trouble}", fix_of(trouble))
    ago = (
        "no cycle has run yet"
        if cycles.last is None
        else f"the last cycle was {format_duration(cycles.last)} ago"
    )
    is_silent = cycles.last is None or cycles.last > STALE_AFTER
    if found.where and not cycles.has_next_cycle and is_silent:
        output = last_lines(found.log) if found.log is not None else []
        last = f"; its last output: {clip(output[-1])}" if output else ""
        yield warning("cycles", f"{found.where} should run cycles, but {ago}{last}", found.daemon)
    elif cycles.needed and not (cycles.has_next_cycle or found.where):
        needs = jobs_need_cycles(cluster) or "notices or slices"
        yield warning("cycles", f"no cycles are running, {ago}; {needs} must wait", cycles.fix)
    else:
        runner = f"; {found.where} runs them" if found.where and cycles.by in (None, CRON) else ""
        yield success(
            "cycles", f"{cycles_words(cycles).removeprefix('cycles: ') if cycles.by else ago}{runner}"
        )


def _check_program(found: Installed, this_program: str) -> Iterator[Finding]:
    program = found.program
    if not found.where or not program:
        return
    if shutil.which(program) is None:
        yield failure("cron", f"{found.where} calls {clip(program)}, which no longer exists", found.again)
    elif os.path.realpath(program) != os.path.realpath(this_program):
        yield warning("cron", f"{found.where} calls {clip(program)}, not {this_program}", found.again)
