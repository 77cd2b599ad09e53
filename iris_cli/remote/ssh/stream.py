"""The byte stream of an SSH connection, with the interface of a socket that paramiko needs."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import suppress

from paramiko import Channel, SSHException

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.remote.sockets import TunedSocket
from iris_cli.remote.transport import MAX_STREAMS

READ_AHEAD = 64 << 10
LOGIN_CREDIT = 256 << 10
"""Bytes that a server may send before it has accepted a key."""
CREDIT = 16 << 20
"""Bytes that a server may send between two calls. A channel has a window of 2 MiB."""
STREAMS_CREDIT = CREDIT + MAX_STREAMS * (2 << 20)
"""Bytes that a server may send between two reads of byte streams: the windows of all streams together."""


class Stream:
    """A socket, or a tunnel through another connection.

    Reads block until data arrives or `hang_up` is called. paramiko's short timeouts are ignored, because they would
    wake a thread per connection ten times a second. A server that sends more than `credit` bytes is disconnected,
    because paramiko accepts any amount of data.
    """

    def __init__(self, raw: socket.socket | Channel, carrier: Stream | None = None) -> None:
        """Wrap a socket; `carrier` is the stream of the connection below a tunnel."""
        raw.settimeout(None)
        self.received_at = SYSTEM_CLOCK.monotonic()
        self._received = self._limit = 0  # bytes from the server: until now, and at most
        self.credit = LOGIN_CREDIT
        self.bytes_passed = 0  # bytes in both directions
        self._raw = raw
        self._carrier = carrier
        self._data = b""
        self._read = 0  # bytes of `_data` that were returned to paramiko
        self._closed = False  # paramiko reads this at the exit of the interpreter

    # Called by paramiko

    def settimeout(self, timeout: float | None) -> None:
        """Ignore the timeout."""

    def recv(self, size: int) -> bytes:
        if self._read == len(self._data):
            self._data, self._read = self._receive(), 0
        piece = self._data[self._read : self._read + size]
        self._read += len(piece)
        return piece

    def send(self, data: bytes) -> int:
        size = self._raw.send(data)
        self.bytes_passed += size
        return size

    def close(self) -> None:
        self._closed = True
        if isinstance(self._raw, socket.socket):
            self.hang_up()
        self._close_raw()

    # Called by iris

    def hang_up(self) -> None:
        """Close the stream from any thread. This wakes a blocked reader and writer. Never blocks."""
        if isinstance(self._raw, socket.socket):
            with suppress(OSError):
                self._raw.shutdown(socket.SHUT_RDWR)
        else:  # a tunnel: closing it may block on the connection to the jump host
            threading.Thread(target=self._close_raw, name="iris-ssh-close", daemon=True).start()

    @property
    def credit(self) -> int:
        """The number of bytes that the server may still send. Any thread may set it."""
        return self._limit - self._received

    @credit.setter
    def credit(self, size: int) -> None:
        self._limit = self._received + size

    def has_ended(self) -> bool:
        """Return True if the server is known to have disconnected."""
        return isinstance(self._raw, TunedSocket) and self._raw.has_ended()

    @property
    def fell_silent(self) -> bool:
        """True if the kernel dropped the connection for lack of acknowledgements."""
        return isinstance(self._raw, TunedSocket) and self._raw.fell_silent

    def _close_raw(self) -> None:
        with suppress(OSError, EOFError, SSHException):  # the connection below a tunnel may be lost
            self._raw.close()

    def _receive(self) -> bytes:
        data = self._raw.recv(READ_AHEAD)
        self.received_at = SYSTEM_CLOCK.monotonic()
        self._received += len(data)
        self.bytes_passed += len(data)
        if self.credit < 0:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the server sends too much data")
        if self._carrier is not None:
            self._carrier.credit = CREDIT
        return data


# Long-lived streams


PIECE = 32 << 10
"""Bytes per read."""


class ByteStream:
    """A stream to a port or a terminal of a worker. One thread can send while another receives. All methods block."""

    def __init__(self, channel: Channel, carrier: Stream) -> None:
        """Wrap a channel; `carrier` is the stream of its connection."""
        self._channel = channel
        self._carrier = carrier
        carrier.credit = STREAMS_CREDIT

    def receive(self) -> bytes:
        """Return the next bytes; b"" at the end of the stream or of the connection."""
        try:
            data = self._channel.recv(PIECE)  # also tells the server how much was read
        except (OSError, EOFError, SSHException):
            return b""
        self._carrier.credit = STREAMS_CREDIT
        return data

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises OSError if the stream or the connection has ended."""
        try:
            self._channel.sendall(data)
        except (EOFError, SSHException) as error:
            raise ConnectionResetError(errno.ECONNRESET, "the SSH connection was lost") from error

    def finish(self) -> None:
        """Close the sending direction. Receiving continues."""
        with suppress(OSError, EOFError, SSHException):
            self._channel.shutdown_write()

    def close(self) -> None:
        """Close both directions. A thread blocked in `receive` gets b""."""
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
        """True if nothing can be sent any more."""
        return self._channel.closed
