"""The process of a background loop: preparation before the first cycle, and upgrade to a new version."""

from __future__ import annotations

import os
import pkgutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

import iris_cli
from iris_cli.config.load import load_cluster_config
from iris_cli.core.model.slice import Provider
from iris_cli.errors import ConfigError
from iris_cli.journal.files.runners import LOOP, RunnerLock, read_loop_order
from iris_cli.ops.cluster_handle import ClusterHandle
from iris_cli.ops.loop.changes import Configuration, InstalledProgram
from iris_cli.ops.loop.run import CHECK_INTERVAL, Loop, LoopEnd, LoopPass
from iris_cli.ops.loop.start import COMMAND, has_owner_ended
from iris_cli.ops.session import Session

_NICE = 10
_NOT_NEEDED = (
    *("iris_cli.__main__", "iris_cli.client", "iris_cli.cli.commands.demo", "iris_cli.demo.run"),
    *("iris_cli.capacity.gcp", "iris_cli.render.watch", "iris_cli.render.report"),
)
_LIBRARIES = ("paramiko", "cryptography.hazmat.primitives.asymmetric.ed25519", "yaml", "urllib.request")


def load_everything() -> None:
    """Import all modules of a loop at its start, because an upgrade may replace the files while the loop runs."""
    for module in pkgutil.walk_packages(iris_cli.__path__, "iris_cli.", onerror=lambda _: None):
        if not module.name.startswith(_NOT_NEEDED):
            import_module(module.name)
    for name in _LIBRARIES:
        import_module(name)


def set_up_process() -> None:
    """Lower the priority of this process, ignore SIGHUP, and make new files private."""
    os.umask(0o077)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def await_configuration(handle: ClusterHandle, report: Callable[[str], None]) -> bool:
    """Wait until `cluster.yaml` is valid, and return True. `report` gets each new problem.

    Return False if the state directory is gone, or if the operator stopped the loop.
    """
    state, last_problem = handle.state_path_in_use, ""
    while True:
        try:
            handle.config  # noqa: B018 - loads the configuration; a valid one is cached
            return True
        except ConfigError as error:
            problem = f"no cycle could be run: {error.message}"
        if problem != last_problem:
            report(problem)
            last_problem = problem
        if not state.is_dir() or read_loop_order(state).stopped:
            return False
        handle.clock.sleep(CHECK_INTERVAL)


def serve(
    handle: ClusterHandle,
    program: Sequence[str],
    lock_fd: int | None,
    *,
    begin: Callable[[Session], None],
    report: Callable[[Session, LoopPass], None],
) -> tuple[LoopEnd, RunnerLock] | None:
    """Run the loop. Return why it ended, and its lock. Return None if another loop runs. Raises IrisError, OSError.

    `program`: command line of a loop. `lock_fd`: descriptor of the lock if the parent process took the lock, otherwise
    None. `begin` gets the session before the first pass of the loop. `report` gets each pass.
    """
    runners, now = handle.state.runners, handle.clock.now()
    interval = handle.config.limits.loop_interval
    lock = None
    if lock_fd is not None:
        lock = runners.inherit(lock_fd, COMMAND, interval=interval, since=now)
    lock = lock or runners.hold(LOOP, COMMAND, interval=interval, since=now)
    if lock is None:
        return None
    load_everything()
    path = handle.config_file
    configuration = Configuration(path, lambda: load_cluster_config(path), handle.config)
    if any(each.template.provider is Provider.GCP for each in configuration.initial.scale_groups):
        import_module("iris_cli.capacity.gcp.provider")
    session = handle.session(COMMAND)
    begin(session)
    loop = Loop(
        session=session,
        lock=lock,
        configuration=configuration,
        report=lambda loop_pass: report(session, loop_pass),
        order_at_start=read_loop_order(session.state.path),
        new_version=InstalledProgram(program).new_version,
        has_owner_ended=has_owner_ended,
    )
    return loop.run(), loop.lock


def replace_process(program: Sequence[str], lock: RunnerLock) -> None:
    """Replace this process by the installed program, which inherits the lock. Raises OSError."""
    os.set_inheritable(lock.descriptor, True)
    os.execv(program[0], [*program, "--lock-fd", str(lock.descriptor)])  # noqa: S606 - our own program
