"""Long-lived streams to a port and to a terminal of a worker, and restrictions of servers."""

from __future__ import annotations

import socket
import threading

import pytest

from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.transport import NoAnswer
from tests.support.odd_server import odd_server
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.ssh

SIZE = (80, 24)


def test_a_server_that_forbids_ports_and_terminals_is_recognized(ssh: SshTransport, ssh_lab: SshLab) -> None:
    [host] = ssh_lab(1, options=("AllowTcpForwarding no", "PermitTTY no"))
    link = ssh.connect(host.target(), PATIENCE)
    with pytest.raises(NoAnswer) as forbidden:
        link.open_port(9, PATIENCE)
    assert forbidden.value.hint == "set AllowTcpForwarding yes in the sshd_config of the worker"
    link.abort()
    with pytest.raises(NoAnswer) as refused:
        ssh.open_terminal(host.target(), "true", "xterm", SIZE, PATIENCE)
    assert refused.value.hint == "set PermitTTY yes in the sshd_config of the worker"


def test_a_server_without_terminals_is_not_told_to_permit_them(ssh: SshTransport, ssh_lab: SshLab) -> None:
    [host] = ssh_lab(1)
    with odd_server(host, lambda *_: None) as server, pytest.raises(NoAnswer) as refused:
        ssh.open_terminal(host.target(port=server.port), "true", "xterm", SIZE, PATIENCE)
    assert refused.value.hint == "its SSH server has no terminals: iris launch --follow -- COMMAND ..."


def test_a_blocked_reader_gets_the_end_when_the_connection_is_cut(ssh: SshTransport, ssh_lab: SshLab) -> None:
    [host] = ssh_lab(1)
    link, stream = ssh.open_terminal(host.target(), "stty size; sleep 600", "xterm", SIZE, PATIENCE)
    assert stream.receive() == b"24 80\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = link.open_port(server.getsockname()[1], PATIENCE)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda each=each: found.append(each.receive())) for each in (stream, other)
    ]
    for each in threads:
        each.start()
    link.abort()
    for each in threads:
        each.join(PATIENCE)
    assert found == [b"", b""]
    assert stream.exit_status() is None
    with pytest.raises(OSError, match="closed"):
        other.send(b"x")
