"""`iris cron ...`: run cycles by cron or a systemd timer."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from iris_cli.cli.command_types import Context, flag, option
from iris_cli.errors import IrisError

if TYPE_CHECKING:
    from iris_cli.ops.loop.cron import CronEntry

HELP = "Run cycles regularly from cron or a systemd timer."
EXAMPLES = """
iris cron install --every 1m
iris cron show
"""
COMMANDS = {
    "install": """
iris cron install  # one cycle per minute
iris cron install --every 30s --systemd  # a systemd user timer instead
iris cron install --autoscale  # also create and delete slices
""",
    "show": """
iris cron show
iris cron show --json
""",
    "remove": """
iris cron remove
iris cron remove --config lab.yaml  # of another cluster
""",
}


def install(
    iris: Context,
    every: Annotated[
        str, option("TIME", "Interval: 1m, 5m, 1h; with --systemd also 30s.", show_default=True)
    ] = "1m",
    systemd: Annotated[
        bool, flag("--systemd", "Install a systemd user timer instead of a crontab line.")
    ] = False,
    autoscale: Annotated[bool, flag("--autoscale", "Let each cycle create and delete slices.")] = False,
) -> None:
    """Install a crontab line for `iris schedule --once`. Installing it again changes it."""
    from iris_cli.core.units import parse_duration
    from iris_cli.ops.cluster_handle import user_name
    from iris_cli.ops.loop import cron
    from iris_cli.ops.loop.cron_checks import keys_without_agent, missing_variables
    from iris_cli.render.cycles import show_installed

    entry = cron_entry(iris, every=parse_duration(every), autoscale=autoscale)
    iris.state.create(iris.config.name, command="iris cron install")  # for the output of cron
    keys = keys_without_agent([host.connection for host in iris.config.hosts])
    missing = missing_variables(iris.config.scale_groups if autoscale else (), entry.name if systemd else "")
    if systemd:
        changed = cron.install_timer(entry, units_directory())
        with suppress(IrisError):
            if not cron.has_lingering(user_name()):
                iris.output.message("the timer stops when you log out; to avoid that: loginctl enable-linger")
        with suppress(IrisError):
            cron.remove_crontab(entry)
        where = f"{entry.name}.timer"
    else:
        changed = cron.install_crontab(entry)
        with suppress(IrisError):
            cron.remove_timer(entry, units_directory())
        where = cron.crontab_line(entry)
    show_installed(iris.output, where, changed=changed, keys=keys, missing=missing)


def show(iris: Context) -> None:
    """Show what is installed and the result of the last cycle."""
    from msgspec import structs

    from iris_cli.journal.files.runners import runners_of
    from iris_cli.ops.loop import cron
    from iris_cli.ops.views.cycles import CRON, cron_cycles
    from iris_cli.ops.views.view import cycle_age
    from iris_cli.render.cycles import show_cron as show_found

    entry = cron_entry(iris)
    found = {"crontab": "", "systemd": ""}
    with suppress(IrisError):
        found["crontab"] = cron.crontab_lines(entry)
    with suppress(IrisError):
        found["systemd"] = cron.timer_state(entry, units_directory())
    heartbeat, now = iris.state.read_heartbeat(), iris.clock.now()
    cycle = cycle_age(heartbeat, now)
    if any(found.values()):  # cycles of other runners don't show that cron works
        record = runners_of(heartbeat).get(CRON, {})
        cycle = structs.replace(cycle_age(record, now), stale=cron_cycles(record, now) is None)
    show_found(iris.output, found, cycle, entry.log)


def remove(iris: Context) -> None:
    """Remove the crontab line or the timer of this cluster."""
    from iris_cli.ops.loop import cron
    from iris_cli.render.cycles import show_removed

    entry = cron_entry(iris)
    removed = []
    with suppress(IrisError):
        removed += ["the timer of systemd"] if cron.remove_timer(entry, units_directory()) else []
    if cron.remove_crontab(entry):
        removed.append("the line in the crontab")
    with suppress(IrisError):
        iris.state.forget_runner("cron")
    show_removed(iris.output, removed)


def cron_entry(iris: Context, every: float = 60.0, *, autoscale: bool = False) -> "CronEntry":
    from iris_cli.ops.cluster_handle import this_program
    from iris_cli.ops.loop.cron import CronEntry, absolute_path

    return CronEntry(
        cluster=iris.config.name,
        config=absolute_path(iris.config_file),
        state=absolute_path(iris.state_path_in_use),
        program=this_program(),
        every=every,
        autoscale=autoscale,
    )


def units_directory() -> Path:
    from iris_cli.ops.loop.cron import unit_directory

    return unit_directory(Path.home(), os.environ.get("XDG_CONFIG_HOME", ""))
