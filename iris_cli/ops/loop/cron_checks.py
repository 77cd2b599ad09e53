"""Check that cycles are running, that the scheduled program is this iris, and that cron can use its keys."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.core import Cluster, Connection, Provider, ScaleGroup, clip, format_duration
from iris_cli.errors import IrisError
from iris_cli.files import last_lines
from iris_cli.ops.checks.findings import Finding, Level, failure, success, warning
from iris_cli.ops.loop import cron
from iris_cli.ops.views.cycles import CRON, Cycles, cycles_words, fix_of, jobs_need_cycles
from iris_cli.ops.views.view import STALE_AFTER

_AGENT = "SSH_AUTH_SOCK"
_GOOGLE_PREFIXES = ("GOOGLE_", "CLOUDSDK_")


class Schedule(Struct, frozen=True, kw_only=True):
    """Installed schedule of a cluster. All fields are empty if no schedule is installed."""

    place: str = ""  # "the crontab" or the name of the timer
    program: str = ""
    install_command: str = ""  # installs the schedule again
    status_command: str = ""  # shows the scheduler's state
    log: Path | None = None


def find_schedule(entry: cron.CronEntry, units: Path) -> Schedule:
    """Return the schedule in the crontab or in the systemd units below `units`."""
    with suppress(IrisError):
        if lines := cron.crontab_lines(entry):
            return Schedule(
                place="the crontab",
                program=cron.crontab_program(lines),
                install_command=_install_command(lines),
                status_command="systemctl status cron crond",
                log=entry.log,
            )
    with suppress(IrisError):
        if cron.timer_state(entry, units):
            name, service = f"{entry.name}.timer", cron.installed_service(entry, units)
            return Schedule(
                place=name,
                program=cron.service_program(service),
                install_command=f"{_install_command(service)} --systemd",
                status_command=f"systemctl --user status {name}; journalctl --user -u {entry.name}",
            )
    return Schedule()


def _install_command(schedule: str) -> str:
    """Return the command that installs a schedule again with its interval, or with 1m if it names no interval."""
    found = re.search(r'--cron"? "?([0-9]+)', schedule)
    return f"iris cron install --every {format_duration(float(found[1]) if found else 60.0)}"


def check_cycles(
    cycles: Cycles, cluster: Cluster, schedule: Schedule, this_command: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield findings about the runner of cycles and the installed schedule."""
    yield from _check_program(schedule, this_command[0])
    for trouble in cycles.troubles:
        yield warning("cycles", f"background loop: {trouble}", fix_of(trouble))
    ago = (
        "no cycle has run yet"
        if cycles.last is None
        else f"the last cycle was {format_duration(cycles.last)} ago"
    )
    is_silent = cycles.last is None or cycles.last > STALE_AFTER
    if schedule.place and not cycles.has_next_cycle and is_silent:
        output = last_lines(schedule.log) if schedule.log is not None else []
        last = f"; its last output: {clip(output[-1])}" if output else ""
        text = f"{schedule.place} should run cycles, but {ago}{last}"
        yield warning("cycles", text, schedule.status_command)
    elif cycles.needed and not (cycles.has_next_cycle or schedule.place):
        needs = jobs_need_cycles(cluster) or "notices or slices"
        yield warning("cycles", f"no cycles are running, {ago}; {needs} must wait", cycles.fix)
    else:
        runner = f"; {schedule.place} runs them" if schedule.place and cycles.by in (None, CRON) else ""
        yield success(
            "cycles", f"{cycles_words(cycles).removeprefix('cycles: ') if cycles.by else ago}{runner}"
        )


def _check_program(schedule: Schedule, this_program: str) -> Iterator[Finding]:
    program, fix = schedule.program, schedule.install_command
    if not program:
        return
    if shutil.which(program) is None:
        yield failure("cron", f"{schedule.place} calls {clip(program)}, which no longer exists", fix)
    elif os.path.realpath(program) != os.path.realpath(this_program):
        yield warning("cron", f"{schedule.place} calls {clip(program)}, not {this_program}", fix)


def keys_without_agent(connections: Sequence[Connection]) -> list[Finding]:
    """Return the problems that SSH keys have under cron, which has no SSH agent and no terminal for passphrases."""
    from iris_cli.ops.checks.host_checks import check_keys

    agent = os.environ.pop(_AGENT, None)
    try:
        return [each for each in check_keys(connections) if each.level is not Level.OK]
    finally:
        if agent is not None:
            os.environ[_AGENT] = agent


def missing_variables(groups: Sequence[ScaleGroup], timer: str = "") -> list[Finding]:
    """Return a finding for each Google variable of this shell, because cron lacks these variables.

    `timer`: the name of the systemd units, or '' for the crontab.
    """
    if all(group.template.provider is not Provider.GCP for group in groups):
        return []
    fix = "crontab -e, above the lines of iris: "
    if timer:
        fix = f"systemctl --user edit {timer}.service, below [Service]: Environment="
    names = sorted(name for name in os.environ if name.startswith(_GOOGLE_PREFIXES))
    return [warning("cron", f"cron has no {name}", f"{fix}{name}=...") for name in names]
