"""TCP connections: tuned for short exchanges."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from iris_cli.remote.ssh import sockets
from iris_cli.remote.ssh.sockets import TunedSocket
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def pair() -> Iterator[tuple[TunedSocket, socket.socket]]:
    """The two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        addresses = socket.getaddrinfo("127.0.0.1", listener.getsockname()[1], type=socket.SOCK_STREAM)
        ours = sockets.connect(addresses, time.monotonic() + PATIENCE)
        theirs, _ = listener.accept()
    ours.settimeout(PATIENCE)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    ("level", "option", "value"),
    [
        ("IPPROTO_TCP", "TCP_NODELAY", 1),
        ("SOL_SOCKET", "SO_KEEPALIVE", 1),
        ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
        ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 5000),
    ],
)
def test_a_connection_has_no_delays_and_notices_a_dead_host(
    pair: tuple[TunedSocket, socket.socket], level: str, option: str, value: int
) -> None:
    if not hasattr(socket, option):
        pytest.skip(f"no {option} on this system")
    assert pair[0].getsockopt(getattr(socket, level), getattr(socket, option)) == value


def test_acknowledgements_are_undelayed_again_after_each_read(
    pair: tuple[TunedSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    armed: list[socket.socket] = []
    monkeypatch.setattr(sockets, "acknowledge_now", armed.append)
    for _ in range(3):
        pair[1].sendall(b"x")
        assert pair[0].recv(1) == b"x"
    assert armed == [pair[0]] * 3


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_the_other_side_has_ended_is_found_to_be_so_without_waiting(
    pair: tuple[TunedSocket, socket.socket], *, reset: bool
) -> None:
    ours, theirs = pair
    ours.settimeout(None)
    assert not ours.has_ended()
    theirs.sendall(b"x")
    assert not ours.has_ended()
    assert ours.recv(1) == b"x"
    if reset:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    until(ours.has_ended)
