"""`iris doctor`: look at everything, and say of each fault how to mend it."""

from typing import TYPE_CHECKING, Annotated

import typer

from iris_cli.cli.command_types import flag
from iris_cli.cli.context import Context
from iris_cli.errors import IrisError

if TYPE_CHECKING:
    from iris_cli.config.schema import ClusterConfig
    from iris_cli.ops.loop.cron.checks import Installed
    from iris_cli.ops.session import Session
    from iris_cli.ops.views.cycles import Cycles

EXAMPLES = """
iris doctor
iris doctor --offline  # without the hosts
"""


def doctor(
    context: typer.Context, offline: Annotated[bool, flag("--offline", "Do not contact the hosts.")] = False
) -> int:
    """Check the whole set-up; print a fix for each problem.

    Changes nothing, neither on this machine nor on workers. Exits with 0 if no check failed.
    """
    from iris_cli.ops.checks.findings import exit_code
    from iris_cli.ops.doctor import examine
    from iris_cli.ops.workplace import this_program
    from iris_cli.render import checks as render

    iris: Context = context.obj
    findings = examine(
        lambda: iris.config,
        lambda config: _session(iris, config),
        lambda: _cron(iris),
        ours=this_program(),
        offline=offline,
    )
    return exit_code(render.show_checks(iris.output, findings, lambda: _cycles(iris)))


def _cycles(iris: Context) -> "Cycles | None":
    """Who runs cycles; None where nothing says which cluster is meant."""
    from iris_cli.ops.views.cycles import cycles_of

    try:
        return cycles_of(iris.state, iris.clock.now(), iris.config.loop)
    except IrisError:
        return None


def _cron(iris: Context) -> "Installed":
    """What has cycles of this cluster run; nothing can be said where there is no configuration."""
    from iris_cli.cli.commands.cron import cron_entry, units_directory
    from iris_cli.ops.loop.cron.checks import Installed, installed

    try:
        return installed(cron_entry(iris), units_directory())
    except IrisError:
        return Installed()


def _session(iris: Context, config: "ClusterConfig | None") -> "Session":
    """A session also where there is no configuration to be had: the log and its workers are there anyway."""
    if config is None:
        from iris_cli.config.schema import ClusterConfig

        iris.state = iris.state_of(None)
        iris.config = ClusterConfig(path=iris.state.path)
    return iris.session("iris doctor")
