"""Simulate a server with a long round trip by a relay: works on every machine, without privileges."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any


class DelayLine:
    """Delivers each piece `delay` seconds after `put`, in order, for any number of pieces."""

    def __init__(self, delay: float, hand_over: Callable[[bytes], None]) -> None:
        self._delay = delay
        self._hand_over = hand_over
        self._under_way: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()

    def put(self, data: bytes, extra: float = 0.0) -> None:
        """Add a piece; an empty one is the end of the stream."""
        if not self._delay:
            self._hand_over(data)
            return
        self._under_way.append(data)
        self._loop.call_later(self._delay + extra, self._arrived)

    def _arrived(self) -> None:
        self._hand_over(self._under_way.popleft())


class _End(asyncio.Protocol):
    """One end of a relayed connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: DelayLine | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.put(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.data_received(b"")

    def send(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if data:
            self.transport.write(data)
        else:
            self.transport.close()


class _Relay:
    """Forwards to a port, and connects after the time of a handshake: loopback itself connects at once."""

    def __init__(self, to_port: int, round_trip: float) -> None:
        self._to_port = to_port
        self._round_trip = round_trip
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> asyncio.Protocol:
        client = _End()
        task = asyncio.get_running_loop().create_task(self._connect(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return client

    async def _connect(self, client: _End) -> None:
        loop, way = asyncio.get_running_loop(), self._round_trip / 2
        await asyncio.sleep(3 * way)
        _, server = await loop.create_connection(_End, "127.0.0.1", self._to_port)
        server.other = DelayLine(way, client.send)
        client.other = DelayLine(way, server.send)
        for data in client.early:
            server.send(data)


async def listen(make: Callable[[], asyncio.Protocol], *about: Any) -> None:
    """Serve on a free loopback port until stdin ends; print the port and `about`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], *about, flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("round_trip", type=float, help="seconds")
    given = parser.parse_args()
    asyncio.run(listen(_Relay(given.port, given.round_trip).accept))


if __name__ == "__main__":
    main()
