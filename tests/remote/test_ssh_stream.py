"""The byte stream below a connection: what a server can send, or not read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, cast

import paramiko
import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh.sockets import CREDIT, LOGIN_CREDIT, ByteStream, Stream
from iris_cli.remote.transport import NoAnswer, Script, Target
from tests.support.odd_server import Anybody
from tests.support.relay import relay
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until

BIG = 3_000_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_data_read_ahead_is_returned_in_pieces(pair: tuple[socket.socket, socket.socket]) -> None:
    stream = Stream(pair[0])
    pair[1].sendall(b"123456")
    assert [stream.recv(4), stream.recv(4)] == [b"1234", b"56"]


def test_a_reader_is_woken_by_hanging_up_and_by_nothing_else(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    stream = Stream(pair[0])
    stream.settimeout(0.01)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(stream.recv, 10)
        with pytest.raises(TimeoutError):
            reading.result(0.1)
        stream.hang_up()
        assert reading.result(PATIENCE) == b""


def test_a_server_that_sends_more_than_its_credit_is_cut_off(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    stream = Stream(pair[0])

    def flood() -> None:
        with suppress(OSError):
            while True:
                pair[1].sendall(bytes(1 << 16))

    def read_all() -> None:
        while True:
            stream.recv(1 << 16)

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    with pytest.raises(ConnectionAbortedError):
        read_all()
    stream.close()
    thread.join(PATIENCE)


def test_data_through_a_tunnel_does_not_use_the_credit_of_the_jump_host(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    outer, theirs = socket.socketpair()
    with outer, theirs:
        carrier = Stream(outer)
        carrier.credit = 1
        pair[1].sendall(b"x")
        Stream(pair[0], carrier).recv(1)
        assert carrier.credit == CREDIT


class _Breakable(Stream):
    """A stream on which nothing can be sent once it `is_cut`, while the reader has noticed nothing yet."""

    is_cut = False

    def send(self, data: bytes) -> int:
        if self.is_cut:
            raise ConnectionResetError
        return super().send(data)


def test_a_lost_connection_ends_a_byte_stream_also_if_a_sender_notices_it_first(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    key, ours = paramiko.ECDSAKey.generate(), _Breakable(pair[0])
    server, client = paramiko.Transport(pair[1]), paramiko.Transport(cast(Any, ours))
    with closing(server), closing(client):
        server.add_server_key(key)
        server.start_server(event=threading.Event(), server=Anybody())
        client.start_client(timeout=PATIENCE)
        client.auth_publickey("any", key)
        channel = client.open_session(timeout=PATIENCE)
        stream, theirs = ByteStream(channel, ours), server.accept(PATIENCE)
        assert theirs is not None
        theirs.sendall(bytes(1 << 20))  # the client confirms it in parts, while it reads
        ours.is_cut = True
        assert len(b"".join(iter(stream.receive, b""))) < 1 << 20
        with pytest.raises(OSError, match="connection was lost"):
            stream.send(b"x")


def _answer(ssh: SshTransport, target: Target, script: bytes) -> bytes:
    return ssh.run(
        target, Script(text=script, connect_timeout=PATIENCE, timeout=PATIENCE, limit=2 * BIG)
    ).stdout


@pytest.mark.ssh
@pytest.mark.parametrize(
    "options",
    [
        ["Ciphers aes256-ctr", "MACs hmac-sha2-512"],  # the length of a packet is encrypted, too
        ["Ciphers aes256-ctr", "MACs hmac-sha2-256-etm@openssh.com"],
        ["Ciphers aes128-gcm@openssh.com,aes128-ctr"],  # the first is not in all versions of the library
        ["RekeyLimit 1M"],
    ],
    ids=" ".join,
)
def test_every_cipher_works_for_megabytes_and_the_next_call(
    ssh_lab: SshLab, ssh: SshTransport, options: list[str]
) -> None:
    (host,) = ssh_lab(options=options)
    script = b"head -c %d /dev/zero\nexit\n" % BIG + b"#" * BIG
    assert _answer(ssh, host.target(), script) == bytes(BIG)
    assert _answer(ssh, host.target(), b"echo again\n") == b"again\n"


@pytest.mark.ssh
def test_a_host_that_takes_nothing_delays_no_other(ssh_lab: SshLab, ssh: SshTransport) -> None:
    stuck, well = ssh_lab(2)
    with relay(stuck.port) as way, ThreadPoolExecutor() as pool:
        _answer(ssh, stuck.target(port=way.port), b"true")
        way.freeze()
        waiting = pool.submit(_answer, ssh, stuck.target(port=way.port), b"exit\n" + b"#" * BIG)
        for number in range(5):
            assert _answer(ssh, well.target(), b"echo %d" % number) == b"%d\n" % number
        assert not waiting.done()
        way.thaw()
        with suppress(NoAnswer):  # if nothing was sent yet, it retries once and gets an answer
            waiting.result()


@pytest.mark.ssh
@pytest.mark.parametrize(
    "packet",
    [
        bytes(4),
        b"\0\0\0\1\0",
        b"\xff" * 64,
        b"\0\0\0\x0c\4\x62" + bytes(10),
    ],
    ids=["empty", "tiny", "much too large", "out of turn"],
)
def test_a_packet_that_cannot_be_ends_its_own_connection_alone(
    ssh_lab: SshLab, ssh: SshTransport, packet: bytes
) -> None:
    (host,) = ssh_lab()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(b"SSH-2.0-Strange\r\n" + packet)
                client.shutdown(socket.SHUT_WR)
                until(lambda: not client.recv(1 << 16))

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with pytest.raises(NoAnswer) as caught:
            _answer(ssh, host.target(port=listener.getsockname()[1]), b"true")
        thread.join(PATIENCE)
    assert (caught.value.kind, caught.value.step) == (SilenceKind.PROTOCOL, "key exchange")
    assert not caught.value.sent
    assert _answer(ssh, host.target(), b"echo well") == b"well\n"


@pytest.mark.ssh
@pytest.mark.parametrize(
    ("greeting", "step"),
    [(b"", "SSH banner"), (b"SSH-2.0-Strange\r\n\x7f\xff\xff\xff", "key exchange")],
    ids=["a line without end", "a packet without end"],
)
def test_a_flood_before_the_login_ends_the_connection(
    ssh_lab: SshLab, ssh: SshTransport, greeting: bytes, step: str
) -> None:
    (host,) = ssh_lab()
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def flood(client: socket.socket) -> None:
            with client, suppress(OSError):
                client.sendall(greeting)
                while True:
                    client.sendall(bytes(1 << 14))
                    sent.append(1 << 14)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    flood(listener.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        with pytest.raises(NoAnswer) as caught:
            _answer(ssh, host.target(port=listener.getsockname()[1]), b"true")
        listener.shutdown(socket.SHUT_RDWR)
    assert (caught.value.kind, caught.value.step) == (SilenceKind.PROTOCOL, step)
    assert sum(sent) < 64 * LOGIN_CREDIT  # the rest is in buffers of the kernel
