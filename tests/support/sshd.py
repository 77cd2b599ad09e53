"""A lab of real OpenSSH servers on loopback. Works as root and as an ordinary user."""

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
from tests.support.strays import end_strays, parents
from tests.support.waiting import PATIENCE, until

KEPT = 5
"""Servers that run on for the next test: each one more makes every search of the process table longer."""


@dataclass(eq=False)
class SshHost:
    """One sshd with a host key, a port and a home directory of its own."""

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
        """As `ssh-keyscan` prints it."""
        return f"[{self.address}]:{self.port} {self.public_host_key}"

    @property
    def fingerprint(self) -> str:
        return presented(self.public_host_key).fingerprint

    def connection(self, **overrides: Any) -> Connection:
        """How to reach it; the client key fits."""
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
        """What happens when a host is created anew; counts from the next start."""
        self.public_host_key = write_key(self.host_key_path)
        self._serves_old_key = True

    def log(self) -> str:
        """What the server wrote in this test."""
        return self._whole_log()[self._lent_at :]

    def _whole_log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def launch(self) -> None:
        """Start without waiting until it answers."""
        self.port = self.port or _free_port()
        config = self.directory / "sshd_config"
        config.write_text("\n".join(self._config()) + "\n")
        self._serves_old_key = False
        with (self.directory / "log").open("ab") as log:
            self._launched_at = len(self._whole_log())
            # -r: it serves a connection without starting itself again, which takes a third of its processor time;
            # OpenSSH from 9.8 on ignores that and starts a program beside the absolute path.
            command = [sshd_path(), "-r", "-D", "-e", "-f", str(config)]
            self._process = self._spawn(command, log)

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it is this server, and no other, that has the port: whoever connects now is served."""

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
        """End the server and the connections it serves, as a power cut would."""
        switch_off([self])

    def lend(self, name: str, client_key: Path) -> None:
        """Give it to a test that knows nothing of the one before. If it does not run, it is launched."""
        self.name, self.client_key = name, client_key
        self._lent_at = len(self._whole_log())
        if self._process is None:
            self.launch()

    def renew(self) -> None:
        """Give it an empty home, and forget what the last test has changed."""
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
    """Where sshd is; skips the test if it is nowhere. `/usr/sbin` is often not on an ordinary user's PATH."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin")
    if found is None:
        pytest.skip("no sshd on this machine (install openssh-server)")
    return found


@cache
def sshd_version() -> tuple[int, int]:
    """`(9, 2)` for OpenSSH 9.2. A version without `-V` says it among its complaints."""
    result = subprocess.run([sshd_path(), "-V"], capture_output=True, text=True, check=False)
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", result.stderr + result.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def write_key(path: Path, passphrase: str = "") -> str:
    """Make a key pair in `path` and `path.pub`; the public line is returned."""
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
    """`ssh-ed25519 AAAA…` as the transport would show it."""
    return PresentedKey.of(base64.b64decode(public_line.split()[1]))


_GIVEN: set[int] = set()
"""Ports that servers of this process were given: one that is starting doesn't have its port yet."""


def _free_port() -> int:
    """A port that nobody listens on, below those that outgoing connections are given: a server that is stopped
    finds it free when it starts again.
    """
    while True:
        port = random.randint(10_000, 30_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port


def switch_off(hosts: Sequence[SshHost]) -> None:
    """End these servers and the connections they serve."""
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


def _descendants(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Sessions, shells and what they started."""
    if not processes:
        return []
    pids = [process.pid for process in processes]
    children: dict[int, list[int]] = {}
    for child, parent in parents():
        children.setdefault(parent, []).append(child)
    found = list(pids)
    for one in found:
        found.extend(children.get(one, []))
    return found[len(pids) :]


class SshLab:
    """`ssh_lab(4)` gives four servers. `known_hosts` has their keys by worker, as `iris` records them.

    Servers without `env` and `options` are those of the `shared` lab, if there is one: they run on after the test.
    """

    def __init__(self, directory: Path, shared: SshLab | None = None) -> None:
        self.directory = directory
        self.hosts: list[SshHost] = []
        self.client_key = directory / "client_key"
        self.known_hosts = directory / "known_hosts"
        self._shared = shared
        self._lent: list[SshHost] = []
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
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists; a start-up script makes it
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
        """End the servers, and what was started through them."""
        if self._shared is not None:
            self._shared.roll_back(self._lent)
        own = [host for host in self.hosts if host not in self._lent]
        switch_off(own)
        for host in own:
            host.stop()
        if own:
            end_strays(self.directory)

    def lend_to(self, lab: SshLab, count: int) -> list[SshHost]:
        """So many servers that the other lab has not been given yet."""
        first = len(lab._lent)
        while len(self.hosts) < first + count:
            self._host({}, ())
        lent = self.hosts[first : first + count]
        for host in lent:
            host.lend(f"host-{len(lab.hosts)}", lab.client_key)
            lab.hosts.append(host)
        lab._lent += lent
        return lent

    def roll_back(self, lent: Sequence[SshHost]) -> None:
        """End what was started through these servers, and make them as good as new."""
        if lent:
            _kill(_descendants([host._process for host in lent if host._process is not None]))
            end_strays(self.directory)
        switch_off(self.hosts[KEPT:])
        for host in lent:
            host.renew()

    def _host(self, env: Mapping[str, str], options: Sequence[str]) -> SshHost:
        name = f"host-{len(self.hosts)}"
        host = SshHost(name, self.directory / name, self.client_key, env, options)
        host.home.mkdir(parents=True)
        host.new_host_key()
        self.hosts.append(host)
        return host


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    """Servers that the tests of this process use in turn."""
    lab = SshLab(tmp_path_factory.mktemp("servers"))
    try:
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def ssh_lab(shared_lab: SshLab, tmp_path: Path) -> Iterator[SshLab]:
    """Servers on demand; what was started through them ends with the test, also when it fails."""
    directory = tmp_path / "lab"
    directory.mkdir()
    lab = SshLab(directory, shared_lab)
    try:
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def ssh(ssh_lab: SshLab) -> Iterator[SshTransport]:
    """A transport that knows the lab's hosts and reads nothing of the user who runs the tests."""
    transport = SshTransport(ssh_lab.known_hosts, ssh_config=None, user_known_hosts=None)
    yield transport
    transport.close()


def know(file: Path, *hosts: SshHost) -> None:
    """Append the keys of hosts to a known_hosts file of a user."""
    with file.open("a") as lines:
        lines.writelines(f"{host.known_hosts_line}\n" for host in hosts)
