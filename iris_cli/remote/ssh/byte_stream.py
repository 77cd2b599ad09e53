"""A byte stream to a worker that lasts as long as both sides like: to one of its ports, or to a terminal there."""

from __future__ import annotations

from contextlib import suppress

from paramiko import Channel, SSHException

from iris_cli.remote.ssh.stream import CREDIT, Stream

PIECE = 32 << 10
"""Bytes that are read at a time."""


class ByteStream:
    """Both directions may be used at the same time, each by one thread. All calls block until they are done."""

    def __init__(self, channel: Channel, carrier: Stream) -> None:
        """`carrier` is the stream of the connection."""
        self._channel = channel
        self._carrier = carrier

    def receive(self) -> bytes:
        """The next bytes; none at the end of the stream, or of the connection."""
        data = self._channel.recv(PIECE)
        self._carrier.credit = CREDIT
        return data

    def send(self, data: bytes) -> None:
        """Raises OSError once the stream has ended."""
        self._channel.sendall(data)

    def finish(self) -> None:
        """Send no more; the other side may go on."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        """End both directions; a thread that waits for bytes gets none."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.close()

    def resize(self, columns: int, lines: int) -> None:
        """Tell the terminal at the other end how large the window is."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.resize_pty(columns, lines)

    def exit_status(self) -> int | None:
        """Of the program on the terminal, once the stream has ended; None if the connection ended first."""
        status = self._channel.recv_exit_status()
        return status if status >= 0 else None

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._channel.closed
