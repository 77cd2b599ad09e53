"""`iris loop ...`: start, stop and show the background loop."""

import os
from typing import TYPE_CHECKING, Annotated

from iris_cli.cli.command_types import Context, flag, option
from iris_cli.errors import ConfigError, ExitCode, UsageError

if TYPE_CHECKING:
    from iris_cli.ops.loop.run import LoopPass
    from iris_cli.ops.session import Session

HELP = "Control the process that runs cycles in the background."
EXAMPLES = """
iris loop show
iris loop start  # with the environment of this shell
iris loop stop  # until the next start
"""
COMMANDS = {
    "start": """
iris loop start  # replaces a running loop
ssh-add && iris loop start  # with this shell's SSH agent
""",
    "stop": """
iris loop stop
iris loop stop && iris cron install  # use cron instead
""",
    "show": """
iris loop show
iris loop show --json
""",
}


def start(iris: Context) -> None:
    """Run the background loop with the environment of this shell.

    Replaces a running loop. The loop ends with the last job.
    """
    from iris_cli.config.schema import Mode
    from iris_cli.ops.loop import start as operation
    from iris_cli.ops.views.cycles import work_left
    from iris_cli.render import cycles as render

    if iris.config.loop is Mode.OFF:
        raise UsageError(
            f"{iris.config_file} says loop: off", hint="write loop: auto, or use iris cron install"
        )
    iris.state.create(iris.config.name, command="iris loop start")
    session = iris.session("iris loop start")
    cluster = session.view()
    if session.damage is not None:
        raise session.damage.error()
    if not work_left(cluster, session.config, session.state):
        operation.record_order(iris.state, iris.clock, stopped=False, command=session.command)
        operation.end_loop(iris.state, iris.clock)
        render.show_started(iris.output, None)
        return
    render.show_started(iris.output, operation.start(iris))
    if operation.logout_kills_processes(os.environ):
        iris.output.message("the loop ends when you log out; to avoid that: loginctl enable-linger")


def stop(iris: Context) -> None:
    """Stop the background loop; none starts until `iris loop start`."""
    from iris_cli.ops.loop import start as operation
    from iris_cli.render import cycles as render

    try:
        name = iris.config.name
    except ConfigError:
        state = iris.state_of(None)  # stop the loop even if cluster.yaml is invalid
        if not state.path.is_dir():
            raise
    else:
        state = iris.state
        state.create(name, command="iris loop stop")  # the stop request is stored in the state directory
    render.show_stopped(iris.output, operation.stop(state, iris.clock))


def show(iris: Context) -> None:
    """Show what runs cycles, and the end of the loop's log."""
    from iris_cli.files import last_lines
    from iris_cli.journal.files.runners import read_loop_order
    from iris_cli.journal.layout import LOOP_LOG
    from iris_cli.ops.loop.start import logout_kills_processes
    from iris_cli.ops.views.cycles import cycles_of, with_invalid_configuration
    from iris_cli.render import cycles as render

    invalid = _why_invalid(iris)
    session = iris.session("iris loop show")
    cycles = cycles_of(iris.state, iris.clock.now(), iris.config.loop, needed=_is_needed(session))
    for message in session.messages:  # problems of the log
        iris.output.warning(message)
    render.show_loop(
        iris.output,
        with_invalid_configuration(cycles) if invalid else cycles,
        read_loop_order(iris.state.path),
        mode=None if invalid else iris.config.loop,
        invalid=invalid,
        log=last_lines(iris.state.path / LOOP_LOG),
        killed_at_logout=logout_kills_processes(os.environ),
    )


def _why_invalid(iris: Context) -> str:
    """Return the first problem of cluster.yaml, and replace `iris.config` with defaults; '' if the file is valid."""
    from iris_cli.config.schema import ClusterConfig

    try:
        iris.config  # noqa: B018 - a cached property
    except ConfigError as error:
        state = iris.state_of(None)
        if not state.path.is_dir():
            raise
        iris.state, iris.config = state, ClusterConfig(path=state.path)
        return error.problems[0] if error.problems else error.message
    return ""


def run(
    iris: Context,
    lock_fd: Annotated[
        int | None, option("FD", "File descriptor of the lock, if the parent process holds it.", hidden=True)
    ] = None,
    check: Annotated[bool, flag("--check", "Import everything, then end.", hidden=True)] = False,
) -> int:
    """Run the loop in this process."""
    from iris_cli import __version__
    from iris_cli.ops.loop.run import load_everything
    from iris_cli.render.cycles import LoopLog

    iris.starts_loop = False
    if check:
        load_everything()
        iris.output.line(__version__)
        return ExitCode.OK
    try:
        _run(iris, lock_fd)
    except KeyboardInterrupt:  # from `iris loop stop` or a shutdown
        LoopLog(iris.clock.now).write("ended by a signal")
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _run(iris: Context, lock_fd: int | None) -> None:
    """Run the loop until it ends, or replace this process after an upgrade."""
    from iris_cli import __version__
    from iris_cli.ops.loop import run as operation
    from iris_cli.ops.loop import start
    from iris_cli.render.cycles import LoopLog

    operation.set_up_process()
    start.redirect_streams(iris.state_path_in_use)
    log = LoopLog(iris.clock.now)
    if not operation.await_configuration(iris, log.write):
        log.write("ended: it was stopped")
        return
    program = start.loop_program(iris)

    def begin(session: "Session") -> None:
        session.tell = lambda message: log.write(message)
        log.write(f"iris {__version__} runs cycles, pid {os.getpid()}")

    def report(session: "Session", loop_pass: "LoopPass") -> None:
        log.record(session.cluster, loop_pass)
        start.rotate_loop_log(session.state.path)

    ended = operation.serve(iris, program, lock_fd, begin=begin, report=report)
    if ended is None:
        log.write("another loop runs already")
        return
    reason, lock = ended
    log.write(f"ended: {reason}")
    if reason is operation.LoopEnd.UPGRADE:
        operation.replace_process(program, lock)


def _is_needed(session: "Session") -> bool:
    """Return whether open work needs cycles."""
    from iris_cli.errors import NotFoundError
    from iris_cli.ops.views.cycles import work_left

    try:
        return bool(work_left(session.view(), session.config, session.state))
    except NotFoundError:  # no log yet
        return False


HIDDEN = {"run": run}
