"""Algorithms of the key exchange: the cheapest first."""

from __future__ import annotations

import socket

import pytest

from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh.link import Link
from iris_cli.remote.transport import Script
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE


def test_the_cheapest_algorithms_and_recorded_key_types_are_preferred() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        options = Link(ours, {"ssh-rsa"})._transport.get_security_options()
        assert options.kex[0] == "curve25519-sha256@libssh.org"
        assert [name for name in options.kex if not name.endswith("-sha1")][
            -1
        ] == "diffie-hellman-group-exchange-sha256"
        assert options.digests[0].endswith("-etm@openssh.com")
        assert options.key_types[0].startswith("rsa-sha2-")
        if any("-gcm@" in name for name in options.ciphers):  # not in all versions of the library
            assert "-gcm@" in options.ciphers[0]


@pytest.mark.ssh
@pytest.mark.parametrize(
    "method",
    [
        "diffie-hellman-group-exchange-sha256",
        "diffie-hellman-group14-sha256",
        "ecdh-sha2-nistp256",
        "curve25519-sha256@libssh.org",
    ],
)
def test_a_server_with_one_method_is_reached(ssh_lab: SshLab, ssh: SshTransport, method: str) -> None:
    (host,) = ssh_lab(options=[f"KexAlgorithms {method}"])
    assert (
        ssh.run(host.target(), Script(text=b"exit 3", connect_timeout=PATIENCE, timeout=PATIENCE)).status == 3
    )
