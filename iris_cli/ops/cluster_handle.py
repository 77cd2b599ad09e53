"""The configuration and the state directory in use, and sessions with real files, a real clock and real SSH."""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.errors import UsageError
from iris_cli.files import current_directory

if TYPE_CHECKING:
    from iris_cli.config.schema import ClusterConfig
    from iris_cli.journal.state_dir import StateDir
    from iris_cli.ops.session import GetProgress, Session
    from iris_cli.remote.ssh import SshTransport
    from iris_cli.remote.task_runner import TaskRunner


def this_program() -> tuple[str, ...]:
    """Return the command line of this program, with a path that stays valid when iris is upgraded."""
    called = Path(sys.argv[0])
    for path in (called, Path(sys.executable).with_name("iris")):
        if path.name == "iris" and path.is_file() and os.access(path, os.X_OK):
            return (str(path.absolute()),)
    return (sys.executable, "-m", "iris_cli")


def user_name() -> str:
    """Return the user name, or the uid as text if the user has no name, as in some containers."""
    if name := os.environ.get("LOGNAME") or os.environ.get("USER"):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


class ClusterHandle(Struct, dict=True):
    """Handle to one cluster: its configuration and state directory, and the objects derived from them.

    `lock_timeout` is in seconds (None: the default). `shared`: True if a user's program uses iris as a library.
    """

    config_path: Path | None = None
    state_path: Path | None = None
    lock_timeout: float | None = None
    shared: bool = False
    clock: Clock = SYSTEM_CLOCK

    @property
    def is_in_task(self) -> bool:
        """True inside a task without a state directory. Its commands send requests, and cycles answer them."""
        has_state = self.state_path or self.config_path or os.environ.get("IRIS_STATE_DIR")
        return not has_state and bool(os.environ.get("IRIS_TASK_DIR") and os.environ.get("IRIS_JOB_ID"))

    @cached_property
    def config_file(self) -> Path:
        if self.is_in_task:
            raise UsageError(
                "not available inside a task: it needs the state directory",
                hint="available inside a task: launch, status, wait, cancel, logs, register-endpoint",
            )
        from iris_cli.config.load import find_config

        return find_config(self.config_path, os.environ, current_directory())

    @cached_property
    def config(self) -> ClusterConfig:
        from iris_cli.config.load import load_cluster_config

        return load_cluster_config(self.config_file)

    @property
    def state_path_in_use(self) -> Path:
        state_dir = self.state_path or os.environ.get("IRIS_STATE_DIR")
        return Path(state_dir) if state_dir else self.config_file.parent / "state"

    @property
    def actor(self) -> str:
        """User and host name for the log and the lock."""
        return f"{user_name()}@{os.uname().nodename}"

    @cached_property
    def state(self) -> StateDir:
        """State directory of this cluster. A log of another cluster is rejected."""
        return self.state_of(self.config.name)

    def state_of(self, cluster_name: str | None) -> StateDir:
        """Return the state directory. `cluster_name` is None if there is no configuration."""
        from iris_cli.journal.state_dir import StateDir

        return StateDir(
            self.state_path_in_use, now=self.clock.now, actor=self.actor, cluster_name=cluster_name
        )

    @cached_property
    def transport(self) -> SshTransport:
        """SSH connections, with the host keys of this state directory."""
        from iris_cli.remote.ssh import SshTransport

        return SshTransport(self.state.known_hosts, shared=self.shared)

    def tell(self, message: str) -> None:
        """Print a message at once. This class prints nothing; a subclass may override the method."""

    def progress(self, get_progress: GetProgress) -> AbstractContextManager[None]:  # noqa: ARG002 - for overrides
        """Show the progress of a slow step. This class shows nothing; a subclass may override the method."""
        return nullcontext()

    def session(self, command: str, transport: SshTransport | None = None) -> Session:
        """Return a session for one command, without any I/O. `transport` overrides `ClusterHandle.transport`."""
        from iris_cli.journal.state_dir import LOCK_TIMEOUT
        from iris_cli.ops.session import Session

        return Session(
            state=self.state,
            config=self.config,
            make_runner=lambda cluster_id: self._runner(cluster_id, transport or self.transport),
            clock=self.clock,
            command=command,
            lock_timeout=LOCK_TIMEOUT if self.lock_timeout is None else self.lock_timeout,
            tell=self.tell,
            progress=self.progress,
        )

    def _runner(self, cluster_id: str, transport: SshTransport) -> TaskRunner:
        from iris_cli.remote.srun import SrunTransport
        from iris_cli.remote.task_runner import TaskRunner

        limits = self.config.limits
        return TaskRunner(
            SrunTransport(transport, os.environ),
            cluster_id,
            connect_timeout=limits.connect_timeout,
            timeout=limits.dispatch_timeout,
        )
