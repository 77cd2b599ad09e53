"""A server that breaks the rules, or stretches them, harms nobody but its own connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_DATA, MSG_EXT_INFO, MSG_SERVICE_ACCEPT

from iris_cli.remote import ssh_packets
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh_packets import Packets
from iris_cli.remote.ssh_reader import Reader
from iris_cli.remote.transport import NoAnswer, Target
from tests.support.odd_server import Eager, odd_server
from tests.support.relay import Fault, relay
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh
_KEX_REPLY = 31


def _answer(ssh: SshTransport, target: Target, script: bytes) -> bytes:
    return ssh.run(target, script, connect_timeout=PATIENCE, timeout=PATIENCE).stdout


def _message(*parts: int | bytes) -> paramiko.Message:
    """The first part is the message's number."""
    message = paramiko.Message()
    message.add_byte(bytes([int(parts[0])]))
    for part in parts[1:]:
        message.add_int(part) if isinstance(part, int) else message.add_string(part)
    return message


@contextmanager
def _calling(ssh: SshTransport, target: Target) -> Iterator[None]:
    """Meanwhile a call is under way whose end is of no interest."""

    def call() -> None:
        with pytest.raises(NoAnswer):
            _answer(ssh, target, b"true")

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call)
        yield
        calling.result()


def test_a_list_of_extensions_without_end_delays_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    odd, well = ssh_lab(2)
    said = threading.Event()

    def endless(transport: Any, _channel: paramiko.Channel) -> None:
        transport._send_message(_message(MSG_EXT_INFO, 0xFFFFFFFF))
        said.set()

    with odd_server(odd, endless) as server, _calling(ssh, odd.target(port=server.port)):
        assert said.wait(PATIENCE)
        assert _answer(ssh, well.target(), b"echo well") == b"well\n"


def test_output_that_was_not_asked_for_ends_the_connection(ssh_lab: SshLab, ssh: SshTransport) -> None:
    """Nobody reads what comes for a shell that waits for its script: it would fill the memory."""
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


def test_a_server_may_begin_the_key_exchange_before_it_knows_who_is_there(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    watch = Reader.watch

    def watch_for_long(self: Reader, sock: socket.socket, source: Any) -> None:
        watch(self, sock, source)
        until(lambda: source.host_key_type)  # its message was read before ours is under way

    monkeypatch.setattr(Reader, "watch", watch_for_long)
    with odd_server(host, lambda *_: None, Eager) as server:
        key = ssh.presented_key(host.target(port=server.port), PATIENCE)
        assert (key,) == ssh.known_keys(host.target())


class _Verbose(paramiko.Transport):
    """Its part of the key exchange is a number of 200 kB, which takes seconds to read."""

    def _send_message(self: Any, message: paramiko.Message) -> None:
        if message.asbytes()[0] == _KEX_REPLY:
            message = _message(_KEX_REPLY, b"", b"\x7f" * 200_000, b"")
        self.packetizer.send_message(message)


def test_numbers_of_a_key_exchange_have_a_limit(ssh_lab: SshLab, ssh: SshTransport) -> None:
    (host,) = ssh_lab()
    with (
        odd_server(host, lambda *_: None, _Verbose) as server,
        pytest.raises(NoAnswer, match="too large"),
    ):
        ssh.presented_key(host.target(port=server.port), PATIENCE)


class _Insistent(paramiko.Transport):
    """Says again and again that we may authenticate."""

    def _send_message(self: Any, message: paramiko.Message) -> None:
        for _ in range(1000 if message.asbytes()[0] == MSG_SERVICE_ACCEPT else 1):
            self.packetizer.send_message(message)


def test_a_server_has_us_sign_once(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = ssh_lab()
    signed: list[object] = []
    sign = paramiko.Ed25519Key.sign_ssh_data

    def note(key: paramiko.Ed25519Key, *args: Any, **named: Any) -> Any:
        if threading.current_thread().name == "iris-ssh-reader":
            signed.append(key)
        return sign(key, *args, **named)

    monkeypatch.setattr(paramiko.Ed25519Key, "sign_ssh_data", note)
    with (
        odd_server(host, lambda *_: None, _Insistent) as server,
        pytest.raises(NoAnswer, match="out of turn"),
    ):
        _answer(ssh, host.target(port=server.port), b"true")
    assert len(signed) == 1


def test_keys_that_we_want_to_exchange_cost_no_connection(
    ssh_lab: SshLab, ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the server hears of it, it goes on: a channel may end meanwhile, which is to be confirmed.

    Other calls may share the connection.
    """
    (host,) = ssh_lab()
    monkeypatch.setattr(Packets, "REKEY_BYTES", 20_000)
    with relay(host.port, Fault(piece=15_000, delay=0.01)) as way:
        for size in range(50_000, 60_000, 2000):
            script = b"exec head -c %d /dev/zero\n" % size
            assert _answer(ssh, host.target(port=way.port), script) == bytes(size)
        assert way.connections == 1


def test_pieces_of_any_size_are_put_together_when_packets_hide_their_length(
    ssh_lab: SshLab, ssh: SshTransport
) -> None:
    (host,) = ssh_lab(options=["Ciphers aes256-ctr", "MACs hmac-sha2-256"])
    with relay(host.port, Fault(piece=5)) as way:
        assert _answer(ssh, host.target(port=way.port), b"echo well") == b"well\n"


def test_what_a_server_does_not_take_is_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_packets, "MOST_UNSENT", 100_000)
    ours, theirs = socket.socketpair()
    packets = Packets(ours)

    def go_on() -> None:
        for _ in range(10_000):
            packets.write_all(bytes(10_000))

    with ours, theirs, pytest.raises(EOFError):
        go_on()
