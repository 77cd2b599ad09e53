"""A long-lived byte stream to a worker: to one of its ports or to a terminal."""

from __future__ import annotations

from contextlib import suppress

from paramiko import Channel, SSHException

from iris_cli.remote.ssh.stream import CREDIT, Stream

PIECE = 32 << 10
"""Bytes per read."""


class ByteStream:
    """A byte stream in both directions, each usable by one thread at the same time. All calls block."""

    def __init__(self, channel: Channel, carrier: Stream) -> None:
        """Wrap a channel; `carrier` is the stream of its connection."""
        self._channel = channel
        self._carrier = carrier

    def receive(self) -> bytes:
        """Return the next bytes, b"" at the end of the stream or of the connection."""
        data = self._channel.recv(PIECE)
        self._carrier.credit = CREDIT
        return data

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises OSError once the stream has ended."""
        self._channel.sendall(data)

    def finish(self) -> None:
        """Close the sending direction; receiving continues."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        """Close both directions; a thread blocked in `receive` gets b""."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.close()

    def resize(self, columns: int, lines: int) -> None:
        """Send the new window size to the remote terminal."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.resize_pty(columns, lines)

    def exit_status(self) -> int | None:
        """Return the program's exit status at the end of the stream; None if the connection was lost."""
        status = self._channel.recv_exit_status()
        return status if status >= 0 else None

    @property
    def has_ended(self) -> bool:
        """True once nothing can be sent any more."""
        return self._channel.closed
