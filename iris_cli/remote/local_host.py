"""A host on this machine for the demo: a real SSH server in a process of its own, with its own key and home.

Run as `python -m iris_cli.remote.local_host`; reads its settings as one JSON object from the first line of
stdin, prints its port and its host key as another, and ends when stdin ends, with all that runs there, so that it
can't outlive whoever started it (unless told to `stay`). It lets in one key, and runs what it is told with the
home and the metadata server of the host it plays. Loopback only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import paramiko
from paramiko import (  # type: ignore[attr-defined]  # the published types leave them out
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_SUCCEEDED,
)

from iris_cli.inhabitants import end_inhabitants
from iris_cli.remote.local_keys import make_key

_LOOPBACK = "127.0.0.1"
_METADATA_ROOT = "/computeMetadata/v1/"


def main() -> None:
    """Play one host until stdin ends."""
    settings = json.loads(sys.stdin.readline())
    host = _Host(settings)
    listener = socket.create_server((_LOOPBACK, 0), backlog=64)
    said = {"port": listener.getsockname()[1], "pid": os.getpid(), "key": host.key.get_base64()}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    threading.Thread(target=_accept, args=(listener, host), daemon=True).start()
    if settings["stay"]:
        threading.Event().wait()
    while sys.stdin.read(1):
        pass
    end_inhabitants(Path(settings["home"]).parent)


class _Host:
    """What all connections to one host share."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        if not Path(settings["host_key"]).exists():
            make_key(Path(settings["host_key"]))
        self.key = paramiko.Ed25519Key.from_private_key_file(settings["host_key"])
        self.client_key = settings.get("client_key") or _public_part(settings["client_key_file"])
        home = Path(settings["home"])
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        metadata = _serve_metadata(settings["metadata"])
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        self.environment = {**keep, "HOME": str(home), "SHELL": "/bin/sh", "GCE_METADATA_HOST": metadata}


def _public_part(private_key: str) -> str:
    return paramiko.PKey.from_path(private_key).get_base64()


class _Door(paramiko.ServerInterface):
    """One connection: who may come in, and what it may ask for."""

    def __init__(self, host: _Host) -> None:
        self.host = host

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's interface
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - paramiko's interface
        return int(AUTH_SUCCESSFUL if key.get_base64() == self.host.client_key else AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - paramiko's interface
        return int(OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_execute, args=(self.host, channel, command), daemon=True).start()
        return True


def _accept(listener: socket.socket, host: _Host) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve, args=(connection, host), daemon=True).start()


def _serve(connection: socket.socket, host: _Host) -> None:
    transport = paramiko.Transport(connection)
    transport.add_server_key(host.key)
    try:
        transport.start_server(server=_Door(host))
    except (paramiko.SSHException, EOFError, OSError):
        transport.close()  # a port scan, or a client that gave up


def _execute(host: _Host, channel: paramiko.Channel, command: bytes) -> None:
    """Run a command as sshd does: the channel stays open until its streams are closed, by children too."""
    process = subprocess.Popen(  # noqa: S603 - running what an authenticated client sends is what a server does
        ["/bin/sh", "-c", os.fsdecode(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=host.environment,
        cwd=host.environment["HOME"],
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
        channel.send_exit_status(status if status >= 0 else 128 - status)
        channel.close()
    except (OSError, EOFError, paramiko.SSHException):
        return  # the client has gone


def _feed(channel: paramiko.Channel, sink: IO[bytes]) -> None:
    try:
        while data := channel.recv(1 << 16):
            sink.write(data)
            sink.flush()
        sink.close()
    except OSError:
        return  # the command ended without reading all of it


def _drain(source: IO[bytes], send: Any) -> None:
    try:
        while data := os.read(source.fileno(), 1 << 15):
            send(data)
    except OSError:
        return  # the client has gone


def _serve_metadata(values: Mapping[str, str]) -> str:
    """Start the host's metadata server; returns its address. `values` by path below `/computeMetadata/v1/`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values.get(self.path.removeprefix(_METADATA_ROOT))
            found = value is not None and self.headers.get("Metadata-Flavor") == "Google"
            body = (value or "").encode() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the interface of http.server
            """Say nothing: stdout belongs to whoever started us."""

    server = ThreadingHTTPServer((_LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"{_LOOPBACK}:{server.server_address[1]}"


if __name__ == "__main__":
    main()
