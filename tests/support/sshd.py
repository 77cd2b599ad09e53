"""OpenSSH servers on loopback, for root and for ordinary users."""

from __future__ import annotations

import base64
import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris_cli.core.ids import WorkerId
from iris_cli.core.model.worker import Connection
from iris_cli.remote.host_keys import PresentedKey
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import Target
from tests.support.strays import Since, end_strays, parents
from tests.support.waiting import PATIENCE, until

KEPT = 5
"""Servers that are kept for the next test. Each one slows down searches of the process table."""


@dataclass(eq=False)
class SshHost:
    """An sshd with its own host key, port and home directory."""

    name: str
    directory: Path
    client_key: Path
    env: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    address: str = "127.0.0.1"
    port: int = 0
    public_host_key: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _launched_at: int = 0
    _lent_at: int = 0
    _serves_old_key: bool = False

    @property
    def worker(self) -> WorkerId:
        return WorkerId(self.name)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def host_key_path(self) -> Path:
        return self.directory / "host_key"

    @property
    def known_hosts_line(self) -> str:
        """Return its line as `ssh-keyscan` prints it."""
        return f"[{self.address}]:{self.port} {self.public_host_key}"

    @property
    def fingerprint(self) -> str:
        return presented(self.public_host_key).fingerprint

    def connection(self, **overrides: Any) -> Connection:
        """Return the connection settings, with the accepted client key."""
        settings: dict[str, Any] = {
            "host": self.address,
            "port": self.port,
            "user": getpass.getuser(),
            "key": str(self.client_key),
        }
        return Connection(**settings | overrides)

    def target(self, **overrides: Any) -> Target:
        return Target(worker=self.worker, connection=self.connection(**overrides))

    def new_host_key(self) -> None:
        """Change the host key, as if the host was re-created; used from the next start on."""
        self.public_host_key = write_key(self.host_key_path)
        self._serves_old_key = True

    def log(self) -> str:
        """Return the server's log of this test."""
        return self._whole_log()[self._lent_at :]

    def _whole_log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def launch(self) -> None:
        """Start it; don't wait until it answers."""
        self.port = self.port or _free_port()
        config = self.directory / "sshd_config"
        config.write_text("\n".join(self._config()) + "\n")
        self._serves_old_key = False
        with (self.directory / "log").open("ab") as log:
            self._launched_at = len(self._whole_log())
            # -r: don't execute sshd again for each connection, which takes a third of its CPU time;
            # OpenSSH 9.8 and later ignores it and starts a program next to sshd's absolute path.
            command = [sshd_path(), "-r", "-D", "-e", "-f", str(config)]
            self._process = self._spawn(command, log)

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until this server, not another one, listens on the port."""

        def listens() -> bool:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"sshd did not start: {self.log()}")
            return (
                f"Server listening on {self.address} port {self.port}."
                in self._whole_log()[self._launched_at :]
            )

        until(listens, self._whole_log)

    def start(self) -> None:
        self.launch()
        self.wait()

    def stop(self) -> None:
        """End the server and its connections, as a power cut would."""
        switch_off([self])

    def lend(self, name: str, client_key: Path) -> None:
        """Prepare it for the next test, and launch it unless it runs."""
        self.name, self.client_key = name, client_key
        self._lent_at = len(self._whole_log())
        if self._process is None:
            self.launch()

    def renew(self) -> None:
        """Empty its home, and undo changes of the last test."""
        if self._serves_old_key:
            self.stop()
        self.home.rename(self.directory / f"home.{len(list(self.directory.glob('home.*')))}")
        self.home.mkdir()

    def _config(self) -> list[str]:
        env = {"HOME": str(self.home), **self.env}
        return [
            f"ListenAddress {self.address}",
            f"Port {self.port}",
            f"HostKey {self.host_key_path}",
            f"AuthorizedKeysFile {self.directory.parent}/client_key.pub",
            f"PidFile {self.directory / 'pid'}",
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in env.items()),
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            "PrintMotd no",
            "PrintLastLog no",
            "PermitUserRC no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            *(["PerSourcePenalties no"] if sshd_version() >= (9, 8) else []),
            *self.options,
        ]


def sshd_path() -> str:
    """Return the path of sshd; skips the test if it is not installed. `/usr/sbin` may not be in PATH."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin")
    if found is None:
        pytest.skip("no sshd on this machine (install openssh-server)")
    return found


@cache
def sshd_version() -> tuple[int, int]:
    """Return `(9, 2)` for OpenSSH 9.2. Versions without `-V` print it in the error message."""
    result = subprocess.run([sshd_path(), "-V"], capture_output=True, text=True, check=False)
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", result.stderr + result.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def write_key(path: Path, passphrase: str = "") -> str:
    """Make a key pair in `path` and `path.pub`; return the public line."""
    key = Ed25519PrivateKey.generate()
    secret: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        secret = serialization.BestAvailableEncryption(passphrase.encode())
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, secret)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.touch(mode=0o600)
    path.write_bytes(private)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")
    return public.decode()


def presented(public_line: str) -> PresentedKey:
    """Return `ssh-ed25519 AAAA…` as a PresentedKey."""
    return PresentedKey.parse(base64.b64decode(public_line.split()[1]))


_GIVEN: set[int] = set()
"""Ports of servers of this process, which may still be starting."""


def _free_port() -> int:
    """Return a free port below those of outgoing connections, so that it is still free when a stopped server
    starts again.
    """
    while True:
        port = random.randint(10_000, 30_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port


def switch_off(hosts: Sequence[SshHost]) -> None:
    """End these servers and their connections."""
    processes = [host._process for host in hosts if host._process is not None]
    family = _descendants(processes)
    for process in processes:
        process.kill()
        process.wait(PATIENCE)
    for host in hosts:
        host._process = None
    _kill(family)


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(processes: Sequence[subprocess.Popen[bytes]], since: Since | None = None) -> list[int]:
    """Return the processes of sessions: shells and what they started."""
    if not processes:
        return []
    pids = [process.pid for process in processes]
    children: dict[int, list[int]] = {}
    for child, parent in parents(since):
        children.setdefault(parent, []).append(child)
    found = list(pids)
    for one in found:
        found.extend(children.get(one, []))
    return found[len(pids) :]


class SshLab:
    """`ssh_lab(4)` returns four servers. `known_hosts` has their keys by worker, as `iris` records them.

    Servers without `env` and `options` are those of the `shared` lab, if there is one: they are kept after the test.
    """

    kind: type[SshHost] = SshHost
    prefix = "host"  # of their names

    def __init__(self, directory: Path, shared: SshLab | None = None) -> None:
        self.directory = directory
        self.hosts: list[SshHost] = []
        self.client_key = directory / "client_key"
        self.known_hosts = directory / "known_hosts"
        self._shared = shared
        self._lent: list[SshHost] = []
        self._made = Since()
        if shared is None:
            write_key(self.client_key)
        else:
            for suffix in ("", ".pub"):
                shutil.copy(f"{shared.client_key}{suffix}", f"{self.client_key}{suffix}")
        self.known_hosts.touch(mode=0o600)

    def __call__(
        self, count: int = 1, *, env: Mapping[str, str] | None = None, options: Sequence[str] = ()
    ) -> list[SshHost]:
        """`env` is added to the environment of sessions, `options` are lines of sshd_config."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(
                mode=0o755, exist_ok=True
            )  # sshd needs it; usually a start-up script makes it
        if self._shared is not None and not env and not options:
            started = self._shared.lend_to(self, count)
        else:
            started = [self._host(env or {}, options) for _ in range(count)]
            for host in started:
                host.launch()
        for host in started:
            host.wait()
        with self.known_hosts.open("a") as file:
            file.writelines(f"{host.name} {host.public_host_key}\n" for host in started)
        return started

    def stop(self) -> None:
        """End the servers, and all processes started through them."""
        if self._shared is not None:
            self._shared.take_back(self._lent, self._made)
        own = [host for host in self.hosts if host not in self._lent]
        switch_off(own)
        for host in own:
            host.stop()
        if own:
            end_strays(self.directory, self._made)

    def lend_to(self, lab: SshLab, count: int) -> list[SshHost]:
        """Return servers that the other lab does not have yet."""
        first = len(lab._lent)
        while len(self.hosts) < first + count:
            self._host({}, ())
        lent = self.hosts[first : first + count]
        for host in lent:
            host.lend(f"host-{len(lab.hosts)}", lab.client_key)
            lab.hosts.append(host)
        lab._lent += lent
        return lent

    def take_back(self, lent: Sequence[SshHost], since: Since) -> None:
        """End all processes started through these servers since then, and reset the servers."""
        if lent:
            _kill(_descendants([host._process for host in lent if host._process is not None], since))
            end_strays(self.directory, since)
        switch_off(self.hosts[KEPT:])
        for host in lent:
            host.renew()

    def _host(self, env: Mapping[str, str], options: Sequence[str]) -> SshHost:
        name = f"{self.prefix}-{len(self.hosts)}"
        host = self.kind(name, self.directory / name, self.client_key, env, options)
        host.home.mkdir(parents=True)
        host.new_host_key()
        self.hosts.append(host)
        return host


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    """Servers shared by the tests of this process, one test at a time."""
    lab = SshLab(tmp_path_factory.mktemp("servers"))
    try:
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def ssh_lab(shared_lab: SshLab, tmp_path: Path) -> Iterator[SshLab]:
    """Servers on demand; processes started through them end with the test."""
    directory = tmp_path / "lab"
    directory.mkdir()
    lab = SshLab(directory, shared_lab)
    try:
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def ssh(ssh_lab: SshLab) -> Iterator[SshTransport]:
    """A transport that knows the lab's hosts and ignores the files of the user who runs the tests."""
    transport = SshTransport(ssh_lab.known_hosts, ssh_config=None, user_known_hosts=None)
    yield transport
    transport.close()


def know(file: Path, *hosts: SshHost) -> None:
    """Append the keys of hosts to a known_hosts file."""
    with file.open("a") as lines:
        lines.writelines(f"{host.known_hosts_line}\n" for host in hosts)
