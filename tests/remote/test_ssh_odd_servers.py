"""Servers that violate the protocol affect only their own connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_DATA, MSG_EXT_INFO

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh import SshTransport, link
from iris_cli.remote.transport import NoAnswer, Script, Target
from tests.support.odd_server import Eager, odd_server
from tests.support.relay import Fault, relay
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh
_KEX_REPLY = 31


def _answer(ssh: SshTransport, target: Target, script: bytes) -> bytes:
    return ssh.run(target, Script(text=script, connect_timeout=PATIENCE, timeout=PATIENCE)).stdout


def _message(*parts: int | bytes) -> paramiko.Message:
    """Return a message; the first part is its number."""
    message = paramiko.Message()
    message.add_byte(bytes([int(parts[0])]))
    for part in parts[1:]:
        message.add_int(part) if isinstance(part, int) else message.add_string(part)
    return message


@contextmanager
def _calling(ssh: SshTransport, target: Target) -> Iterator[None]:
    """Run a call in a thread during the block, and ignore its result."""

    def call() -> None:
        with suppress(NoAnswer):
            _answer(ssh, target, b"true")

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call)
        yield
        calling.result()


def test_a_long_list_of_extensions_delays_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    odd, well = ssh_lab(2)
    said = threading.Event()

    def long(transport: Any, _channel: paramiko.Channel) -> None:
        transport._send_message(_message(MSG_EXT_INFO, 300_000))
        said.set()

    with odd_server(odd, long) as server, _calling(ssh, odd.target(port=server.port)):
        assert said.wait(PATIENCE)
        assert _answer(ssh, well.target(), b"echo well") == b"well\n"


def test_output_that_was_not_asked_for_ends_the_connection(ssh_lab: SshLab, ssh: SshTransport) -> None:
    """Output of a shell started in advance is not read: it would fill the memory."""
    (host,) = ssh_lab()
    was_cut = threading.Event()

    def flood(transport: Any, _channel: paramiko.Channel) -> None:
        ahead = transport.accept(PATIENCE)
        with suppress(EOFError):
            for _ in range(1000):
                transport._send_message(_message(MSG_CHANNEL_DATA, ahead.remote_chanid, bytes(1 << 15)))
        until(lambda: not transport.is_active())
        was_cut.set()

    with odd_server(host, flood) as server, _calling(ssh, host.target(port=server.port)):
        assert was_cut.wait(PATIENCE)


def test_a_server_may_begin_the_key_exchange_before_the_clients_banner(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab()
    with odd_server(host, lambda *_: None, Eager) as server:
        key = ssh.presented_key(host.target(port=server.port), PATIENCE)
        assert (key,) == ssh.known_keys(host.target())


class _Verbose(paramiko.Transport):
    """A key exchange whose number has 200 kB, more than in any method."""

    def _send_message(self: Any, message: paramiko.Message) -> None:
        if message.asbytes()[0] == _KEX_REPLY:
            message = _message(_KEX_REPLY, b"", b"\x7f" * 200_000, b"")
        self.packetizer.send_message(message)


def test_a_number_of_a_key_exchange_that_is_too_large_is_refused(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with (
        odd_server(host, lambda *_: None, _Verbose) as server,
        pytest.raises(NoAnswer) as caught,
    ):
        ssh.presented_key(host.target(port=server.port), PATIENCE)
    assert (caught.value.kind, caught.value.step) == (SilenceKind.PROTOCOL, "key exchange")


def test_a_connection_is_replaced_before_its_keys_have_to_be_exchanged_again(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that ends during a new key exchange would end the connection."""
    (host,) = ssh_lab()
    monkeypatch.setattr(link, "REPLACE_AFTER", 100_000)
    with relay(host.port) as way:
        for size in (1000, 200_000, 2000, 3000):
            script = b"exec head -c %d /dev/zero\n" % size
            assert _answer(ssh, host.target(port=way.port), script) == bytes(size)
        assert way.connections == 2


def test_pieces_of_any_size_are_put_together_when_packets_hide_their_length(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab(options=["Ciphers aes256-ctr", "MACs hmac-sha2-256"])
    with relay(host.port, Fault(piece=5)) as way:
        assert _answer(ssh, host.target(port=way.port), b"echo well") == b"well\n"
