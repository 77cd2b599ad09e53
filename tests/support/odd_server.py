"""An SSH server with faults that real ones don't have, from paramiko, with a chosen host key and port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE

Oddity = Callable[[Any, paramiko.Channel], object]
"""Called with the connection and the channel instead of running the first command."""


_LIBRARY: Any = paramiko.Transport  # its published types omit the interface for subclasses


class Anybody(paramiko.ServerInterface):
    """Accepts all users; `asked` is set by the first command."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def get_allowed_auths(self, _username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, _username: str, _key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_request(self, _kind: str, _number: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, _channel: paramiko.Channel, _command: bytes) -> bool:
        self.asked.set()
        return True


class Eager(paramiko.Transport):
    """Begins the key exchange before the client's banner, as the protocol allows."""

    def _check_banner(self: Any) -> None:
        self._send_kex_init()
        self._send_kex_init = bool
        _LIBRARY._check_banner(self)


@dataclass
class OddServer:
    """Serves connections one by one on `port`."""

    key: paramiko.PKey
    oddity: Oddity
    kind: type[paramiko.Transport] = paramiko.Transport
    served: list[paramiko.Transport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for transport in self.served:
            transport.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._serve(self._listener.accept()[0])

    def _serve(self, sock: socket.socket) -> None:
        transport, anybody = self.kind(sock), Anybody()
        self.served.append(transport)
        transport.add_server_key(self.key)
        with suppress(paramiko.SSHException, EOFError):
            transport.start_server(server=anybody)
            channel = transport.accept(PATIENCE)
            if channel is not None and anybody.asked.wait(PATIENCE):
                self.oddity(transport, channel)


def odd_server(
    host: SshHost, oddity: Oddity, kind: type[paramiko.Transport] = paramiko.Transport
) -> closing[OddServer]:
    """Return a server with the host key of `host`, so that it is trusted. It is closed after a block."""
    return closing(OddServer(paramiko.PKey.from_path(host.host_key_path), oddity, kind))
