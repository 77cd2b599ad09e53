"""Sockets to a host: TCP, tuned for many short exchanges, or a ProxyCommand; and the byte streams of a connection.

`Stream` has the interface of a socket that paramiko needs.
"""

import errno
import resource
import socket
import subprocess
import threading
from contextlib import suppress
from typing import Any

from paramiko import Channel, SSHException

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.remote.transport import MAX_STREAMS

UNACKNOWLEDGED_TIMEOUT = 5000
"""Milliseconds without an acknowledgement after which Linux drops a connection."""
READ_AHEAD = 64 << 10
LOGIN_CREDIT = 256 << 10
"""Bytes that a server may send before it has accepted a key."""
CREDIT = 16 << 20
"""Bytes that a server may send between two calls. A channel has a window of 2 MiB."""
STREAMS_CREDIT = CREDIT + MAX_STREAMS * (2 << 20)
"""Bytes that a server may send between two reads of byte streams: the windows of all streams together."""


class TunedSocket(socket.socket):
    """A TCP connection. `fell_silent` is True if the kernel dropped it because the host stopped acknowledging data."""

    fell_silent = False

    def has_ended(self) -> bool:
        """Return True if the host has closed the connection and all its data was read."""
        try:
            return not super().recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        try:
            data = super().recv(bufsize, flags)
        except OSError as error:
            if error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
                self.fell_silent = True
                # paramiko would confuse ETIMEDOUT with its own short timeout, and try again.
                raise ConnectionResetError(error.errno, error.strerror) from error
            raise
        # Delayed acknowledgements delay each of SSH's small messages by 40 ms.
        acknowledge_now(self)
        return data


class ProxySocket(socket.socket):
    """The socket of a ProxyCommand. Closing it ends the command."""

    command: subprocess.Popen[bytes]

    def close(self) -> None:
        super().close()
        self.command.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.command.wait(1)


def acknowledge_now(sock: socket.socket) -> None:
    """Disable delayed acknowledgements of TCP. The kernel enables them again after a while."""
    if hasattr(socket, "TCP_QUICKACK"):
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def connect(addresses: list[tuple[Any, ...]], deadline: float) -> TunedSocket:
    """Connect to the first address (of `getaddrinfo`) that answers by the monotonic `deadline`. Raises OSError."""
    failure: OSError = TimeoutError("no time left")
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        share = (deadline - SYSTEM_CLOCK.monotonic()) / (len(addresses) - index)
        if share <= 0:
            break
        sock = TunedSocket(family, kind, protocol)
        try:
            sock.settimeout(share)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            _tune(sock)
            return sock
    raise failure


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        # Set this option only after connecting, because it would also shorten the timeout of `connect`.
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_TIMEOUT),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    acknowledge_now(sock)


def start_proxy(command: str) -> ProxySocket:
    """Run a ProxyCommand of `~/.ssh/config`. Its stdin and stdout are the returned socket. Raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, as ssh runs it
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    sock = ProxySocket(fileno=ours.detach())
    sock.command = process
    return sock


def max_open_files(*, may_raise: bool) -> int:
    """Return the soft limit of open files. With `may_raise` first raise it to 8192 (the default of macOS is 256)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if may_raise and soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return 8192 if soft == resource.RLIM_INFINITY else soft


class Stream:
    """A socket, or a tunnel through another connection.

    Reads block until data arrives or `hang_up` is called. paramiko's short timeouts are ignored, because they would
    wake a thread per connection ten times a second. A server that sends more than `credit` bytes is disconnected,
    because paramiko accepts any amount of data.
    """

    def __init__(self, raw: socket.socket | Channel, carrier: "Stream | None" = None) -> None:
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
