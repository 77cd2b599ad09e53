"""One thread reads all connections: it waits for nobody, whatever a server sends or doesn't take."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from iris_cli.core.observations import SilenceKind
from iris_cli.remote.ssh import SshTransport
from iris_cli.remote.ssh_packets import LARGEST_PACKET, Packets
from iris_cli.remote.ssh_reader import Reader
from iris_cli.remote.transport import NoAnswer, Target
from tests.support.relay import relay
from tests.support.sshd import SshLab
from tests.support.waiting import PATIENCE, until

BIG = 3_000_000


class Listener:
    """Collects what comes until the other side has hung up."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.heard = b""
        self.is_over = False

    def ready(self, *, to_read: bool, to_write: bool) -> bool:
        assert to_read
        assert not to_write
        piece = self.sock.recv(1000)
        self.heard += piece
        return bool(piece)

    def released(self) -> None:
        self.is_over = True


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end and theirs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_all_are_told_what_comes_by_the_same_thread_which_ends_with_the_last() -> None:
    reader = Reader()
    for _ in range(2):  # it begins anew
        with ExitStack() as stack:
            pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(3)]
            listeners = [Listener(ours) for ours, _ in pairs]
            for listener in listeners:
                reader.watch(listener.sock, listener)
            (thread,) = [each for each in threading.enumerate() if each is reader._thread]
            for (_, theirs), listener in zip(pairs, listeners, strict=True):
                theirs.sendall(b"some")
                until(lambda: listener.heard == b"some")  # noqa: B023 - called at once
                assert not listener.is_over
            for _, theirs in pairs:
                theirs.close()
            thread.join(PATIENCE)
            assert not thread.is_alive()
            assert all(listener.is_over for listener in listeners)


class Stumbler(Listener):
    """Fails as nothing else does: what is compiled has failures of its own kind."""

    def ready(self, *, to_read: bool, to_write: bool) -> bool:
        super().ready(to_read=to_read, to_write=to_write)
        raise BaseException("at reading")

    def released(self) -> None:
        super().released()
        raise BaseException("at the end")


def test_a_failure_of_one_ends_no_other(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    reader, listener = Reader(), Listener(ours)
    reader.watch(ours, listener)
    end, its_other = socket.socketpair()
    with end, its_other:
        stumbler = Stumbler(end)
        reader.watch(end, stumbler)
        its_other.sendall(b"x")
        until(lambda: stumbler.is_over)
    theirs.sendall(b"some")
    until(lambda: listener.heard == b"some")


def test_without_a_thread_to_be_had_the_next_one_tries_anew(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    reader, listener = Reader(), Listener(ours)

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError):
            reader.watch(ours, listener)
    reader.watch(ours, listener)
    theirs.sendall(b"some")
    until(lambda: listener.heard == b"some")


def test_what_the_other_side_does_not_take_is_kept_in_order(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    packets, wanted = Packets(ours), list[bool]()
    packets.want_room = wanted.append
    said = [secrets.token_bytes(100_000) for _ in range(30)]
    for piece in said:
        packets.write_all(piece)  # far more than there is room for
    assert wanted == [True]
    heard = b""
    theirs.settimeout(PATIENCE)
    while len(heard) < BIG:
        heard += theirs.recv(1 << 20)
        packets.flush()
    assert heard == b"".join(said)
    assert wanted == [True, False]


def test_what_is_written_together_is_sent_as_one(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    packets = Packets(ours)
    theirs.setblocking(False)
    with packets.together():
        packets.write_all(b"one ")
        packets.write_all(b"two")
        with pytest.raises(BlockingIOError):
            theirs.recv(100)
    assert theirs.recv(100) == b"one two"


def _answer(ssh: SshTransport, target: Target, script: bytes) -> bytes:
    return ssh.run(target, script, connect_timeout=PATIENCE, timeout=PATIENCE, limit=2 * BIG).stdout


@pytest.mark.ssh
@pytest.mark.parametrize(
    "options",
    [
        ["Ciphers aes256-ctr", "MACs hmac-sha2-512"],  # how long a packet is, is encrypted, too
        ["Ciphers aes256-ctr", "MACs hmac-sha2-256-etm@openssh.com"],
        ["Ciphers aes128-gcm@openssh.com,aes128-ctr"],  # not every version of the library knows the first
        ["RekeyLimit 256K"],
    ],
    ids=" ".join,
)
def test_every_way_to_encrypt_serves_for_megabytes_and_several_calls(
    ssh_lab: SshLab, ssh: SshTransport, options: list[str]
) -> None:
    (host,) = ssh_lab(options=options)
    script = b"head -c %d /dev/zero\nexit\n" % BIG + b"#" * BIG
    for _ in range(2):
        assert _answer(ssh, host.target(), script) == bytes(BIG)


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
        with suppress(NoAnswer):  # if nothing was sent yet, it tries once more and is answered
            waiting.result()


@pytest.mark.ssh
@pytest.mark.parametrize(
    "packet",
    [
        bytes(4),
        b"\0\0\0\1\0",
        (LARGEST_PACKET + 1).to_bytes(4, "big"),
        b"\xff" * 64,
        b"\0\0\0\x0c\4\x62" + bytes(10),
    ],
    ids=["empty", "tiny", "too large", "much too large", "out of turn"],
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
                until(lambda: not client.recv(1 << 16))

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with pytest.raises(NoAnswer) as caught:
            _answer(ssh, host.target(port=listener.getsockname()[1]), b"true")
        thread.join(PATIENCE)
    assert (caught.value.kind, caught.value.step) == (SilenceKind.PROTOCOL, "key exchange")
    assert not caught.value.sent
    assert _answer(ssh, host.target(), b"echo well") == b"well\n"
