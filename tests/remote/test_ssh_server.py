"""The SSH server of the hosts of the demo."""

from __future__ import annotations

import time
from pathlib import Path

import paramiko
import pytest

from iris_cli.demo.processes import make_key
from iris_cli.remote import ssh_server
from tests.support.waiting import until


def test_a_command_that_ends_at_once_is_confirmed_before_its_channel_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Delayed(ssh_server._Permissions):
        """The command has ended when its start is confirmed."""

        def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
            allowed = super().check_channel_exec_request(channel, command)
            until((tmp_path / "ended").exists)
            time.sleep(0.2)  # and the server has seen it
            return allowed

    monkeypatch.setattr(ssh_server, "_Permissions", Delayed)
    for name in ("host", "client"):
        make_key(tmp_path / name)
    server = ssh_server.SshServer(
        tmp_path / "host", ssh_server.public_part(str(tmp_path / "client")), {"HOME": str(tmp_path)}
    )
    with paramiko.Transport((ssh_server.LOOPBACK, server.port)) as transport:
        transport.connect(
            username="me", pkey=paramiko.Ed25519Key.from_private_key_file(str(tmp_path / "client"))
        )
        channel = transport.open_session()
        channel.exec_command("trap '>ended' EXIT; exit 3")
        assert channel.recv_exit_status() == 3
