"""The transport over SSH. Its first call imports the SSH library, which takes a while."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.errors import NotWritableError
from iris_cli.remote.host_keys import HostKeys, PresentedKey
from iris_cli.remote.ssh.call import SshCall
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target

if TYPE_CHECKING:
    from iris_cli.remote.ssh.dialer import Dialer
    from iris_cli.remote.ssh.link import Link
    from iris_cli.remote.ssh.sockets import ByteStream


class SshTransport:
    """A transport over SSH.

    It keeps one connection per host, and a second connection for payloads, until `close`. If there are too many
    connections, the least recently used are closed. Host keys are always verified against `known_hosts` (iris's own
    file, by worker id) and the user's files. Settings that a Connection omits are taken from `ssh_config`. With
    `shared` the process also runs another program, so its garbage collection and limits are not changed.
    """

    def __init__(
        self,
        known_hosts: Path,
        *,
        ssh_config: Path | None = Path("~/.ssh/config"),
        user_known_hosts: Path | None = Path("~/.ssh/known_hosts"),
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._known_hosts = known_hosts
        self._host_keys = HostKeys(known_hosts)
        self._ssh_config = ssh_config.expanduser() if ssh_config else None
        self._user_known_hosts = (user_known_hosts.expanduser(),) if user_known_hosts else ()
        self._lock = threading.Lock()
        self._dialer: Dialer | None = None

    def run(self, target: Target, script: Script) -> ScriptResult:
        """Run a script (see Transport.run).

        If a kept connection is dead before anything was sent, open a new one. A payload gets a separate connection,
        because other calls would time out behind it on a slow line.
        """
        dialer = self._load_dialer()
        call = SshCall[ScriptResult](script.connect_timeout, script.timeout)

        def work() -> ScriptResult:
            separate = script.payload is not None
            route = dialer.route(target, first_contact=script.first_contact, separate=separate)
            return dialer.run(call, route, script)

        return call.perform(work)

    def connect(self, target: Target, connect_timeout: float) -> Link:
        """Open a connection only for long-lived streams. The caller ends it with `abort`. Raises NoAnswer."""
        _require_ssh(target, "forward ports")
        dialer = self._load_dialer()
        call: SshCall[Link] = SshCall(connect_timeout)
        return call.perform(lambda: dialer.connect(call, dialer.route(target)))

    def open_terminal(
        self, target: Target, command: str, term: str, size: tuple[int, int], timeout: float
    ) -> tuple[Link, ByteStream]:
        """Run a command on a terminal of `size` (columns, lines). Return its connection and stream. Raises NoAnswer."""
        _require_ssh(target, "open terminals for jobs")
        dialer = self._load_dialer()
        call: SshCall[tuple[Link, ByteStream]] = SshCall(timeout, timeout)

        def work() -> tuple[Link, ByteStream]:
            link = dialer.connect(call, dialer.route(target))
            try:
                call.connected()
                call.guard(link.abort)
                call.enter("terminal")
                call.sending()
                return link, link.open_terminal(command, term, size, timeout)
            except BaseException:
                link.abort()
                raise

        return call.perform(work)

    def presented_key(self, target: Target, connect_timeout: float) -> PresentedKey:
        """Return the host key that the worker presents now, even if it is not on record. Raises NoAnswer."""
        _require_ssh(target, "show host keys")
        dialer = self._load_dialer()
        call = SshCall[PresentedKey](connect_timeout)
        return call.perform(lambda: dialer.fetch_key(call, dialer.route(target)))

    def known_keys(self, target: Target) -> tuple[PresentedKey, ...]:
        """Return the host keys on record for the worker. Raises NoAnswer for wrong SSH settings."""
        dialer = self._load_dialer()
        route = dialer.route(target)
        return dialer.recorded_keys(route, route.worker_depth).keys

    def accept_keys(self, keys: Mapping[WorkerId, PresentedKey]) -> None:
        """Make each of these keys the only one on record for its worker. Raises NotWritableError."""
        try:
            self._host_keys.put({str(worker): key for worker, key in keys.items()})
        except OSError as error:
            hint = f"ls -l {self._known_hosts}"
            whose = ", ".join(keys)
            raise NotWritableError(f"can't record the host key of {whose}: {error}", hint=hint) from error

    def forget_keys(self, workers: Collection[WorkerId]) -> None:
        """Remove the recorded keys of these workers. Raises NotWritableError."""
        try:
            self._host_keys.forget(lambda owner: owner in workers)
        except OSError as error:
            hint = f"ls -l {self._known_hosts}"
            raise NotWritableError(f"can't forget host keys: {error}", hint=hint) from error

    @contextmanager
    def trusting(self, worker: WorkerId, key: PresentedKey) -> Iterator[SshTransport]:
        """Yield another transport that accepts only `key` from the worker. Records nothing. Raises NotWritableError."""
        with tempfile.TemporaryDirectory() as directory:
            known_hosts = Path(directory) / "known_hosts"
            known_hosts.touch(mode=0o600)
            if self._known_hosts.exists():
                known_hosts.write_bytes(self._known_hosts.read_bytes())
            other = SshTransport(known_hosts, ssh_config=self._ssh_config)
            other._user_known_hosts = self._user_known_hosts
            try:
                other.accept_keys({worker: key})
                yield other
            finally:
                other.close()

    def close(self) -> None:
        with self._lock:
            dialer, self._dialer = self._dialer, None
        if dialer is not None:
            dialer.close()

    def _load_dialer(self) -> Dialer:
        """Return the dialer. Call this before the timeouts of a call start, because the import takes a while."""
        with self._lock:
            if self._dialer is None:
                with loading_invoke_on_use():
                    from iris_cli.remote.ssh.config import Routes
                    from iris_cli.remote.ssh.dialer import MAX_UNUSED, Dialer
                    from iris_cli.remote.ssh.sockets import max_open_files

                if not self._shared:
                    _tune_interpreter()
                max_unused = min(MAX_UNUSED, max_open_files(may_raise=not self._shared) // 2)
                self._dialer = Dialer(
                    Routes(self._ssh_config), self._host_keys, self._user_known_hosts, max_unused
                )
            return self._dialer


def _require_ssh(target: Target, action: str) -> None:
    """Raise NoAnswer for a worker that `srun` reaches. `action` is what srun can't do."""
    connection = target.connection
    if connection.allocation:
        where = f"node {connection.node} of Slurm job {connection.allocation}"
        detail = f"{where} is reached by srun, which can't {action}"
        raise NoAnswer(SilenceKind.LOCAL, "configuration", detail, sent=False)


@cache
def _tune_interpreter() -> None:
    """Reduce the cost of garbage collection and of thread switches.

    A thread that waits for the interpreter lock wakes once per switch interval. With hundreds of threads and the
    default interval, waking costs half of the system time. Garbage collection can be rare, because ended connections
    leave no reference cycles.
    """
    gc.freeze()
    gc.set_threshold(10_000)
    sys.setswitchinterval(0.02)


class _Invoke(ModuleType):
    """Stands for the module `invoke`, and loads it at its first use after the context."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("invoke") is self:
            raise AttributeError(name)
        import invoke

        return getattr(invoke, name)


@contextmanager
def loading_invoke_on_use() -> Iterator[None]:
    """Let modules that are imported in this context load invoke at its first use.

    paramiko imports invoke, but uses it only for `Match exec` in ~/.ssh/config. importlib's LazyLoader is no help: in
    Python 3.11, the import itself counts as a use.
    """
    if "invoke" in sys.modules:
        yield
        return
    stand_in = sys.modules["invoke"] = _Invoke("invoke")
    try:
        yield
    finally:
        if sys.modules.get("invoke") is stand_in:
            del sys.modules["invoke"]
