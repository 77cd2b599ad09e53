"""How keys are agreed on: the cheapest method first, none that takes seconds, and the library's own results."""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from hashlib import sha256, sha512
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh_exchange import LARGEST_GROUP, Exchange, GroupExchange
from iris_cli.remote.ssh_packets import Packets
from iris_cli.remote.ssh_wire import Wire
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE

_LIBRARY: Any = paramiko.Transport


class Server(SimpleNamespace):
    """What a method of exchange sees of a connection."""

    server_mode = False

    def __init__(self) -> None:
        super().__init__(said=[])

    def _send_message(self, message: paramiko.Message) -> None:
        self.said.append(message.asbytes())

    def _expect_packet(self, *_kinds: int) -> None:
        """Anything."""

    def _log(self, *_: object) -> None:
        """Nothing."""


def offered(bits: int) -> paramiko.Message:
    """A group of that size."""
    message = paramiko.Message()
    message.add_mpint(1 << (bits - 1) | 1)
    message.add_mpint(2)
    message.rewind()
    return message


def test_a_group_that_takes_long_to_calculate_with_is_neither_asked_for_nor_taken() -> None:
    server = Server()
    exchange: Any = GroupExchange(server)  # type: ignore[arg-type]  # enough of one
    exchange.start_kex()
    assert struct.unpack(">BIII", server.said[0]) == (34, 2048, 3072, LARGEST_GROUP)
    with pytest.raises(paramiko.SSHException, match="4097 bits; more than 4096 take too long"):
        exchange._parse_kexdh_gex_group(offered(LARGEST_GROUP + 1))
    exchange._parse_kexdh_gex_group(offered(LARGEST_GROUP))
    assert server.said[1][0] == 32
    assert exchange.x.bit_length() == 512


def test_what_costs_least_is_asked_for_first() -> None:
    asked = Exchange._preferred_kex
    assert asked[:2] == ("curve25519-sha256", "curve25519-sha256@libssh.org")
    assert [name for name in asked if not name.endswith("-sha1")][
        -1
    ] == "diffie-hellman-group-exchange-sha256"
    assert set(asked[1:]) <= set(_LIBRARY._preferred_kex)


@pytest.mark.parametrize("hash_algorithm", [sha256, sha512])
@pytest.mark.parametrize(
    "secret", [7, 1 << 255 | 3, b"a secret that is a string"], ids=["small", "large", "string"]
)
def test_keys_are_those_that_the_library_would_derive(hash_algorithm: Any, secret: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        exchange: Any = Exchange(ours, (), Packets)
        exchange.kex_engine = SimpleNamespace(hash_algo=hash_algorithm)
        exchange.session_id, exchange.H = secrets.token_bytes(32), secrets.token_bytes(32)
        exchange.K = secret
        if isinstance(secret, bytes) and not hasattr(_LIBRARY, "_add_K"):
            pytest.skip("this version of the library knows no such method")
        for letter in "ABCDEF":
            for size in (12, 32, 64, 200):
                assert exchange._compute_key(letter, size) == _LIBRARY._compute_key(exchange, letter, size)


@pytest.mark.ssh
@pytest.mark.parametrize(
    "method",
    [
        "diffie-hellman-group-exchange-sha256",
        "diffie-hellman-group14-sha256",
        "ecdh-sha2-nistp256",
        "curve25519-sha256",
    ],
)
def test_a_server_with_one_method_is_reached(ssh_lab: SshLab, ssh: SshTransport, method: str) -> None:
    (host,) = ssh_lab(options=[f"KexAlgorithms {method}"])
    assert ssh.run(host.target(), b"exit 3", connect_timeout=PATIENCE, timeout=PATIENCE).status == 3


NEWER_THREADS = frozenset({"_after_fork", "_handle", "_os_thread_handle"})
"""What threads have in versions of Python after 3.11."""


def test_nothing_of_ours_hides_what_a_thread_is_made_of() -> None:
    ours = {name for kind in (Wire, Exchange) for name in vars(kind) if not name.startswith("__")}
    threads = {*dir(threading.Thread), *vars(threading.Thread()), *NEWER_THREADS}
    assert ours & threads == {"run", "start"}
