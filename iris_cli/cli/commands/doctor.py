"""`iris doctor`: check the set-up and print a fix for each problem."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from iris_cli.cli import consent
from iris_cli.cli.command_types import Context, flag, option
from iris_cli.errors import ExitCode, IrisError

if TYPE_CHECKING:
    from iris_cli.config.schema import ClusterConfig
    from iris_cli.ops.checks.findings import Finding
    from iris_cli.ops.loop.cron_checks import Schedule
    from iris_cli.ops.session import Session
    from iris_cli.ops.views.cycles import Cycles
    from iris_cli.render.checks import WrittenBundle

T = TypeVar("T")
EXAMPLES = """
iris doctor
iris doctor --offline  # without the hosts
iris doctor --bundle report.txt  # for a bug report, redacted
"""


def doctor(
    iris: Context,
    offline: Annotated[bool, flag("--offline", "Do not contact the hosts.")] = False,
    bundle: Annotated[
        Path | None, option("FILE", "Write a redacted bundle for a bug report to this new file.")
    ] = None,
    yes: Annotated[bool, flag("--yes", "Write the file of --bundle without asking.")] = False,
) -> int:
    """Check the whole set-up; print a fix for each problem.

    Changes nothing, neither on this machine nor on workers. Exits with 0 if no check failed or a bundle was written.
    """
    from iris_cli.ops.checks.bundle import check_new
    from iris_cli.ops.checks.findings import exit_code
    from iris_cli.ops.cluster_handle import this_program
    from iris_cli.ops.doctor import examine
    from iris_cli.render import checks as render

    if bundle is not None:
        check_new(bundle)
    findings = examine(
        lambda: iris.config,
        lambda config: _session(iris, config),
        lambda: _cron(iris),
        this_command=this_program(),
        offline=offline,
    )

    def write(found: "Sequence[Finding]") -> "WrittenBundle | None":
        return None if bundle is None else _write(iris, bundle, found, yes=yes)

    found = render.show_checks(iris.output, findings, lambda: _cycles(iris), write)
    return ExitCode.OK if bundle is not None else exit_code(found)


def _write(iris: Context, file: Path, findings: "Sequence[Finding]", *, yes: bool) -> "WrittenBundle":
    """Show the contents of the bundle, ask, and write it. Raises IrisError if the user does not agree."""
    from iris_cli.ops.checks.bundle import bundle, write_bundle
    from iris_cli.render import checks as render

    config_file, config = _if_readable(lambda: iris.config_file), _if_readable(lambda: iris.config)
    state = _if_readable(lambda: iris.state_path_in_use)
    session = _if_readable(lambda: _session(iris, config))
    parts = bundle(config_file, state, findings, session)
    render.show_contents(iris.output, file, parts)
    consent.require(iris, f"Write {file}?", yes=yes, action="write", refusal="nothing was written")
    write_bundle(file, parts)
    return render.show_written(iris.output, file, parts)


def _if_readable(get: "Callable[[], T]") -> "T | None":
    try:
        return get()
    except IrisError:  # the findings say why
        return None


def _cycles(iris: Context) -> "Cycles | None":
    """Return the runner of the cycles; None if the configuration can't be read."""
    from iris_cli.ops.views.cycles import cycles_of

    return _if_readable(lambda: cycles_of(iris.state, iris.clock.now(), iris.config.loop))


def _cron(iris: Context) -> "Schedule":
    """Return the crontab line or timer of this cluster; an empty `Schedule` if the configuration can't be read."""
    from iris_cli.cli.commands.cron import cron_entry, units_directory
    from iris_cli.ops.loop.cron_checks import Schedule, find_schedule

    return _if_readable(lambda: find_schedule(cron_entry(iris), units_directory())) or Schedule()


def _session(iris: Context, config: "ClusterConfig | None") -> "Session":
    """Return a session. Without a configuration, the session knows only the workers in the log."""
    if config is None:
        from iris_cli.config.schema import ClusterConfig

        iris.state = iris.state_of(None)
        iris.config = ClusterConfig(path=iris.state.path)
    return iris.session("iris doctor")
