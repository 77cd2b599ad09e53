"""Hosts on cables that can be cut: in network namespaces, or behind relays that stop forwarding.

Namespaces need root and Linux. They have no names: the kernel removes them, and the cables between them, when their
last process has ended and their last file is closed. So a test leaves nothing, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.relay import Relay
from tests.support.sshd import SshHost, SshLab

CLONE_NEWNET = 0x40000000
OURS = "/proc/thread-self/ns/net"
PORT = 2222
"""The port of each server; their addresses differ."""


class Namespace:
    """A network without connections to others."""

    def __init__(self) -> None:
        home = os.open(OURS, os.O_RDONLY)
        try:
            _call("unshare", CLONE_NEWNET)
            try:
                self.file = os.open(OURS, os.O_RDONLY)
            finally:
                _call("setns", home, CLONE_NEWNET)
        finally:
            os.close(home)
        self.ip("link", "set", "lo", "up")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Move this thread, and processes that it starts, into this network during the block."""
        home = os.open(OURS, os.O_RDONLY)
        try:
            _call("setns", self.file, CLONE_NEWNET)
            yield
        finally:
            _call("setns", home, CLONE_NEWNET)
            os.close(home)

    def ip(self, *words: str) -> None:
        with self.inside():
            subprocess.run(["ip", *words], check=True, capture_output=True)

    def close(self) -> None:
        os.close(self.file)


class CableHost(SshHost):
    """A server at the other end of a cable."""

    def cut(self) -> None:
        """Drop all packets in both directions; no side is notified."""
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    @property
    def gate(self) -> Path:
        """Return the directory for a `Gate` on this host; commands in its `tools` come first in PATH."""
        return self.directory / "gate"


@dataclass(eq=False)
class FarHost(CableHost):
    """A host in its own network namespace."""

    near: Namespace | None = None
    far: Namespace | None = None

    def lay_cable(self, number: int) -> None:
        """Connect two namespaces by a cable. `number` makes addresses and names unique."""
        assert self.near is not None
        assert self.far is not None
        self.address, self.port = f"10.99.{number}.2", PORT
        ours, theirs = f"02:00:00:00:{number:02x}:01", f"02:00:00:00:{number:02x}:02"
        place = f"/proc/{os.getpid()}/fd/{self.far.file}"
        cable = f"cable{number}"
        pair = ("address", ours, "type", "veth", "peer", "name", "cable", "address", theirs)
        self.near.ip("link", "add", "name", cable, *pair, "netns", place)
        self.near.ip("address", "add", f"10.99.{number}.1/24", "dev", cable)
        self.near.ip("link", "set", cable, "up")
        # Without this, connections to a host behind a cut cable fail with "no route" after a while, instead of
        # getting no answer.
        self.near.ip("neighbour", "replace", self.address, "lladdr", theirs, "dev", cable, "nud", "permanent")
        self.far.ip("address", "add", f"{self.address}/24", "dev", "cable")
        self.far.ip("link", "set", "cable", "up")

    def cut(self) -> None:
        assert self.far is not None
        self.far.ip("link", "set", "cable", "down")

    def heal(self) -> None:
        assert self.far is not None
        self.far.ip("link", "set", "cable", "up")

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        assert self.far is not None
        with self.far.inside():
            return super()._spawn(command, log)


@dataclass(eq=False)
class RelayedHost(CableHost):
    """A host on this machine behind a relay; `port` is that of the relay once it runs."""

    line: Relay | None = None

    def wait(self) -> None:
        super().wait()
        self.line = Relay(self.port)
        self.port = self.line.port

    def stop(self) -> None:
        super().stop()
        if self.line is not None:
            self.line.close()

    def cut(self) -> None:
        assert self.line is not None
        self.line.freeze()

    def heal(self) -> None:
        assert self.line is not None
        self.line.thaw()


class CableLab(SshLab):
    """A lab whose servers are at the other ends of cables."""

    kind: type[SshHost] = RelayedHost

    @contextmanager
    def near_end(self) -> Iterator[None]:
        """Move this thread to the operator's end of the cables."""
        yield

    def _host(self, env: Mapping[str, str], options: Sequence[str]) -> CableHost:
        host = super()._host(env, options)
        assert isinstance(host, CableHost)
        host.env = {**env, "PATH": f"{host.gate}/tools:{os.environ['PATH']}"}
        return host


class Network(CableLab):
    """A lab in which each server has its own network, with a cable to `ours`."""

    kind = FarHost

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ours = Namespace()
        self.theirs: list[Namespace] = []

    @contextmanager
    def near_end(self) -> Iterator[None]:
        with self.ours.inside():
            yield

    def stop(self) -> None:
        super().stop()
        for namespace in (self.ours, *self.theirs):
            namespace.close()

    def _host(self, env: Mapping[str, str], options: Sequence[str]) -> FarHost:
        self.theirs.append(Namespace())
        host = super()._host(env, options)
        assert isinstance(host, FarHost)
        host.near, host.far = self.ours, self.theirs[-1]
        host.lay_cable(len(self.theirs) - 1)
        return host


@cache
def why_no_namespaces() -> str:
    """Return why networks and cables can't be made on this machine, by making some; "" if they can."""
    if os.environ.get("IRIS_TEST_CABLES") == "relays":
        return "relays are asked for"
    if shutil.which("ip") is None:
        return "no ip command (install iproute2)"
    made: list[Namespace] = []
    try:
        made += [Namespace(), Namespace()]
        cable = ("type", "veth", "peer", "name", "probe")
        made[0].ip("link", "add", "name", "probe", *cable, "netns", f"/proc/{os.getpid()}/fd/{made[1].file}")
    except subprocess.CalledProcessError as error:
        return f"ip: {error.stderr.decode().strip()}"
    except OSError as error:
        return str(error)
    finally:
        for namespace in made:
            namespace.close()
    return ""


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library; Python has these two since 3.12. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
