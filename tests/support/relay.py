"""A TCP relay before a server, which can hang, drop data, cut or delay at a given byte."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The faults of each connection. None means no limit.

    `up` is from the client to the server, `down` the opposite; limits are in bytes of that direction.
    """

    hang: bool = False  # accept, then do nothing
    silent_up: int | None = None  # forward that many bytes, then drop the rest without closing
    silent_down: int | None = None
    cut_up: int | None = None  # forward that many bytes, then close both sides
    cut_down: int | None = None
    reset: bool = False  # cut with RST instead of FIN
    only_first: int | None = None  # only the first connections have faults
    piece: int = 65536  # maximum bytes forwarded at a time
    delay: float = 0.0  # seconds before each piece, in both directions


class Relay:
    """Forwards connections to a port on loopback; counts them and their bytes."""

    def __init__(self, to_port: int, fault: Fault | None = None) -> None:
        self.fault = fault or Fault()
        self.connections = 0
        self.up = 0
        self.down = 0
        self._to_port = to_port
        self._open: list[socket.socket] = []
        self._closed = False
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()
        self.thaw()

    def drop(self) -> None:
        """Cut all connections; new ones are served."""
        for sock in self._open:
            _cut(sock)

    def freeze(self) -> None:
        """Drop all data in both directions; no side is notified."""
        self._flows.clear()

    def thaw(self) -> None:
        """Serve new connections again. Cut the old ones, which have lost bytes."""
        self.drop()
        self._flows.set()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(client)
            is_well = self.fault.only_first is not None and self.connections > self.fault.only_first
            self._serve(client, Fault() if is_well else self.fault)

    def _serve(self, client: socket.socket, fault: Fault) -> None:
        if fault.hang or not self._flows.is_set():
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._to_port))
        except OSError:
            _cut(client)
            return
        self._open.append(server)
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._pump, args=(client, server, fault, "up"), daemon=True).start()
        threading.Thread(target=self._pump, args=(server, client, fault, "down"), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, fault: Fault, direction: str) -> None:
        cut = fault.cut_up if direction == "up" else fault.cut_down
        silent = fault.silent_up if direction == "up" else fault.silent_down
        passed = 0
        with suppress(OSError):
            while cut is None or passed < cut:
                data = source.recv(fault.piece if cut is None else min(fault.piece, cut - passed))
                if not data:
                    break
                if not self._flows.is_set():
                    continue
                time.sleep(fault.delay)
                if silent is not None:
                    data = data[: max(silent - passed, 0)]
                sink.sendall(data)
                passed += len(data)
                setattr(self, direction, getattr(self, direction) + len(data))
        self._flows.wait()  # until then no side learns that the other has closed
        for sock in (source, sink):
            _cut(sock, reset=fault.reset)


def _cut(sock: socket.socket, *, reset: bool = False) -> None:
    with suppress(OSError):
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.shutdown(socket.SHUT_RD)  # wakes its reader, which would keep it open
            sock.close()
        else:
            sock.shutdown(socket.SHUT_RDWR)


def relay(to_port: int, fault: Fault | None = None) -> closing[Relay]:
    """Return a relay, which is closed after a block."""
    return closing(Relay(to_port, fault))


@contextmanager
def deaf_port() -> Iterator[int]:
    """Yield a port with a full queue: connecting to it gets no reply."""
    with socket.socket() as listener, ExitStack() as crowd:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill the queue of the listener
            sock = crowd.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port() -> int:
    """Return a port on loopback on which no process listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
