"""Whether cycles run by themselves, whether it is this iris that runs them, and what to type if not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from iris_cli.core.cluster import Cluster
from iris_cli.core.dataclass import dataclass
from iris_cli.core.ids import clip
from iris_cli.core.units import count, format_duration
from iris_cli.errors import IrisError
from iris_cli.ops.cron import crontab, timer
from iris_cli.ops.cron.entry import CronEntry, last_lines
from iris_cli.ops.findings import Finding, failure, fine, warning
from iris_cli.ops.view import CycleAge

_INSTALL = "iris cron install --every {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What has cycles of a cluster run: `where` it is, the `program` it calls, and how to install it anew."""

    where: str = ""
    program: str = ""
    again: str = _INSTALL.format("1m")
    daemon: str = ""  # how to see whether it is at work
    log: Path | None = None


def installed(entry: CronEntry, units: Path) -> Installed:
    """The line of this cluster in the crontab, or its timer below `units`; nothing where neither can be read."""
    with suppress(IrisError):
        if line := crontab.installed(entry):
            return Installed(
                where="the crontab",
                program=crontab.program(line),
                again=_INSTALL.format(format_duration(crontab.every(line))),
                daemon="systemctl status cron crond",
                log=entry.log,
            )
    with suppress(IrisError):
        if timer.installed(entry, units):
            name = f"{entry.name}.timer"
            return Installed(
                where=name,
                program=timer.program(entry, units),
                again=f"{_INSTALL.format(format_duration(timer.every(entry, units)))} --systemd",
                daemon=f"systemctl --user status {name}; journalctl --user -u {entry.name}",
            )
    return Installed()


def check_cycles(
    cycle: CycleAge, cluster: Cluster, found: Installed, ours: tuple[str, ...]
) -> Iterator[Finding]:
    """Whether somebody runs cycles; `ours` is how this program is called."""
    yield from _check_program(found, ours[0])
    ago = "there was no cycle yet" if cycle.age is None else f"the last one was {_ago(cycle.age)}"
    if found.where and cycle.stale:
        said = last_lines(found.log) if found.log is not None else []
        last = f"; it said last: {clip(said[-1])}" if said else ""
        yield warning("cycles", f"{found.where} should run them, and {ago}{last}", found.daemon)
        return
    waiting = sum(job.end is None for job in cluster.open_jobs())
    if cycle.stale and waiting:
        yield warning("cycles", f"{ago}, and {count(waiting, 'job')} would need one", found.again)
        return
    by = f"; {found.where} runs them" if found.where else ""
    yield fine("cycles", f"{ago}{by}")


def _check_program(found: Installed, ours: str) -> Iterator[Finding]:
    called = found.program
    if not found.where or not called:
        return
    if shutil.which(called) is None:
        yield failure("cron", f"{found.where} calls {clip(called)}, which is not there any more", found.again)
    elif os.path.realpath(called) != os.path.realpath(ours):
        yield warning("cron", f"{found.where} calls {clip(called)}, and this is {ours}", found.again)


def _ago(age: float) -> str:
    return f"{format_duration(age)} ago"
