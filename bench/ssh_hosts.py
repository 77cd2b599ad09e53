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
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.core.model.worker import Connection
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.task_runner import LaunchRequest, TaskRunner
from iris_cli.remote.transport import Target
from tests.support.sshd import SshHost, SshLab, write_key

ROUND_TRIP = 0.05
"""Seconds."""
PATIENCE = 60.0


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
def far_port(port: int, round_trip: float = ROUND_TRIP) -> Iterator[int]:
    """Yield a port that forwards to another one with that round trip in seconds."""
    with _child("bench.latency", str(port), str(round_trip)) as (found, *_):
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
def transport(known_hosts: Path) -> Iterator[SshTransport]:
    """Create a new transport, as each invocation does."""
    made = SshTransport(known_hosts, ssh_config=None, user_known_hosts=None)
    try:
        yield made
    finally:
        made.close()


def runner_of(ssh: SshTransport) -> TaskRunner:
    return TaskRunner(ssh, "bench", connect_timeout=PATIENCE, timeout=PATIENCE)


def launch(runner: TaskRunner, target: Target, identity: tuple[str, str], argv: Sequence[str]) -> Token:
    """Start one task without a set-up; return its token. Raises RuntimeError if the worker did not start it."""
    token = Token(secrets.token_hex(16))
    request = LaunchRequest(token=token, argv=tuple(argv), env={"RANK": "0"})
    answer = runner.prepare(target, [request], boot_id=identity[0], incarnation=identity[1], go=True)
    started = started_in(answer)
    if started != [RemoteState.RUNNING]:
        raise RuntimeError(f"the launch gave {answer}")
    return token


def started_in(answer: WorkerReport | Silence) -> list[RemoteState]:
    """Return the states of the attempts in an answer; all that have started count as running."""
    if isinstance(answer, Silence):
        return []
    begun = {RemoteState.LAUNCHING, RemoteState.EXITED}
    return [RemoteState.RUNNING if each.state in begun else each.state for each in answer.attempts]
