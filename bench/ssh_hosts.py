"""Servers to measure against, and connections to them."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind
from iris_cli.core.model.worker import Connection
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.support.sshd import SshHost, SshLab, write_key

ROUND_TRIP = 0.05
"""Seconds."""
PATIENCE = 60.0
_STARTED = frozenset({RemoteState.LAUNCHING, RemoteState.RUNNING, RemoteState.EXITED})

Identity = tuple[str, str]
"""The boot id and the incarnation of a worker."""


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """Create a temporary directory for keys, homes and logs."""
    with tempfile.TemporaryDirectory(prefix="iris-bench-") as name:
        yield Path(name)


@contextlib.contextmanager
def real_host() -> Iterator[tuple[SshLab, SshHost]]:
    """Start an OpenSSH server on loopback."""
    with directory() as place:
        lab = SshLab(place)
        try:
            (host,) = lab(options=["MaxStartups 100"])
            yield lab, host
        finally:
            lab.stop()


def has_ssh() -> bool:
    """Return True if OpenSSH's server and client are installed."""
    return all(
        shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/usr/local/sbin:/sbin") for name in ("sshd", "ssh")
    )


@contextlib.contextmanager
def far_port(port: int) -> Iterator[int]:
    """Yield a port that forwards to another one with the round trip ROUND_TRIP."""
    with _child("bench.latency", str(port), str(ROUND_TRIP)) as (found, *_):
        yield int(found)


@dataclass(frozen=True, slots=True)
class ScriptedServer:
    """A scripted server, which simulates any number of workers, and its connection settings."""

    port: int
    host_key: str
    client_key: Path
    counter: Path

    @property
    def connection(self) -> Connection:
        return Connection(host="127.0.0.1", port=self.port, user="nobody", key=str(self.client_key))

    @property
    def config(self) -> str:
        """Lines for `~/.ssh/config` that redirect every host to the server."""
        lines = ("Host *", "HostName 127.0.0.1", f"Port {self.port}", "User nobody")
        return "\n".join([*lines, f"IdentityFile {self.client_key}", "UserKnownHostsFile none", ""])

    def connections(self) -> int:
        """Return the number of connections so far."""
        return self.counter.stat().st_size


@contextlib.contextmanager
def scripted_sshd(
    place: Path, round_trip: float = 0.0, *, writing: Sequence[str] = ()
) -> Iterator[ScriptedServer]:
    """Start a server that answers every call like a worker and runs nothing. `writing` sets the output of attempts."""
    counter, client_key = place / "connections", place / "client_key"
    counter.touch()
    write_key(client_key)
    with _child("bench.scripted_sshd", str(round_trip), str(counter), *writing) as (port, *key):
        yield ScriptedServer(int(port), " ".join(key), client_key, counter)


def trust_server(known_hosts: Path, workers: Sequence[WorkerId], server: ScriptedServer) -> None:
    """Record the server's key for all workers."""
    known_hosts.write_text("".join(f"{worker} {server.host_key}\n" for worker in workers))
    known_hosts.chmod(0o600)


@contextlib.contextmanager
def scripted_hosts(count: int, round_trip: float) -> Iterator[tuple[Path, list[Target]]]:
    """Yield a known_hosts file, and workers that are all one scripted server."""
    with directory() as place, scripted_sshd(place, round_trip) as server:
        workers = [WorkerId(f"worker-{number}") for number in range(count)]
        trust_server(place / "known_hosts", workers, server)
        yield place / "known_hosts", [Target(worker=each, connection=server.connection) for each in workers]


@contextlib.contextmanager
def _child(module: str, *arguments: str) -> Iterator[list[str]]:
    """Start a server process, which ends when its stdin does. Yields the words of its first line."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()
        process.communicate()


@contextlib.contextmanager
def new_runner(known_hosts: Path) -> Iterator[TaskRunner]:
    """Yield the calls over new connections, as each invocation makes them."""
    transport = SshTransport(known_hosts, ssh_config=None, user_known_hosts=None)
    with contextlib.closing(transport):
        yield TaskRunner(transport, "bench", connect_timeout=PATIENCE, timeout=PATIENCE)


def launch(runner: TaskRunner, target: Target, identity: Identity) -> Token:
    """Start the program `true` without a set-up; return its token. Raises RuntimeError if it was not started."""
    token = Token(secrets.token_hex(16))
    request = LaunchRequest(token=token, argv=("true",), env={"RANK": "0"})
    answer = runner.prepare(target, [request], boot_id=identity[0], incarnation=identity[1], go=True)
    if isinstance(answer, Silence) or [each.state in _STARTED for each in answer.attempts] != [True]:
        raise RuntimeError(f"the launch gave {answer}")
    return token


class _Recorder:
    """A transport that only records the script."""

    script = b""

    def run(self, target: Target, script: Script) -> ScriptResult:
        self.script = script.text
        raise NoAnswer(SilenceKind.LOCAL, "configuration", "nothing is sent")

    def close(self) -> None:
        """Do nothing: no connection is open."""


def script_of_launch(target: Target, identity: Identity) -> bytes:
    """Return the script that a launch sends to a host."""
    recorder = _Recorder()
    with contextlib.suppress(RuntimeError):  # the launch has no answer
        launch(TaskRunner(recorder, "bench"), target, identity)
    return recorder.script
