"""An SSH server on loopback for the hosts of the demo. It accepts one key and runs commands."""

import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from iris_cli.remote.ssh import loading_invoke_on_use

with loading_invoke_on_use():
    import paramiko
    from paramiko import (  # type: ignore[attr-defined]  # the published types lack these names
        AUTH_FAILED,
        AUTH_SUCCESSFUL,
        OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
        OPEN_SUCCEEDED,
    )

LOOPBACK = "127.0.0.1"


class SshServer:
    """A server that runs in threads until the process ends. Commands run with `environment`, in the directory `HOME`.

    `client_key` is the public part (base64) of the only accepted key.
    """

    def __init__(self, host_key: Path, client_key: str, environment: Mapping[str, str]) -> None:
        self.key = paramiko.Ed25519Key.from_private_key_file(str(host_key))
        self.client_key = client_key
        self.environment = environment
        listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self.port: int = listener.getsockname()[1]
        threading.Thread(target=_accept, args=(listener, self), daemon=True).start()


def public_part(private_key: str) -> str:
    """Return the public part (base64) of the private key in a file."""
    return paramiko.PKey.from_path(private_key).get_base64()


class _Permissions(paramiko.ServerInterface):
    """The permissions of one connection."""

    def __init__(self, server: SshServer) -> None:
        self.server = server

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's interface
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - paramiko's interface
        return int(AUTH_SUCCESSFUL if key.get_base64() == self.server.client_key else AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - paramiko's interface
        return int(OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_execute, args=(self.server, channel, command), daemon=True).start()
        return True


def _accept(listener: socket.socket, server: SshServer) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve, args=(connection, server), daemon=True).start()


def _serve(connection: socket.socket, server: SshServer) -> None:
    transport = paramiko.Transport(connection)
    transport.add_server_key(server.key)
    try:
        transport.start_server(server=_Permissions(server))
    except (paramiko.SSHException, EOFError, OSError):
        transport.close()  # this was a port scan, or the client has disconnected


def _execute(server: SshServer, channel: paramiko.Channel, command: bytes) -> None:
    """Run a command. As in sshd, the channel stays open until the command and its children close their output."""
    process = subprocess.Popen(  # noqa: S603 - the client is authenticated
        ["/bin/sh", "-c", os.fsdecode(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=server.environment,
        cwd=server.environment["HOME"],
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    feeder = threading.Thread(target=_feed, args=(channel, process.stdin), daemon=True)
    feeder.start()
    drains = [
        threading.Thread(target=_drain, args=(process.stdout, channel.sendall), daemon=True),
        threading.Thread(target=_drain, args=(process.stderr, channel.sendall_stderr), daemon=True),
    ]
    for drain in drains:
        drain.start()
    status = process.wait()
    for drain in drains:
        drain.join()
    try:
        # The thread of the connection confirms the start of the command. A client would take a channel that is closed
        # before that for a failure. The same thread receives this answer, later.
        channel.get_transport().global_request("keepalive@openssh.com", wait=True)
        channel.send_exit_status(status if status >= 0 else 128 - status)
        channel.close()
    except (OSError, EOFError, paramiko.SSHException):
        return  # the client has disconnected


def _feed(channel: paramiko.Channel, sink: IO[bytes]) -> None:
    try:
        while data := channel.recv(1 << 16):
            sink.write(data)
            sink.flush()
        sink.close()
    except OSError:
        return  # the command ended without reading all its input


def _drain(source: IO[bytes], send: Any) -> None:
    try:
        while data := os.read(source.fileno(), 1 << 15):
            send(data)
    except OSError:
        return  # the client has disconnected
