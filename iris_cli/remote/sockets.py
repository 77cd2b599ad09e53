"""Sockets to a host: TCP, tuned for many short exchanges, or a ProxyCommand."""

import errno
import resource
import socket
import subprocess
from contextlib import suppress
from typing import Any

from iris_cli.clock import SYSTEM_CLOCK

UNACKNOWLEDGED_TIMEOUT = 5000
"""Milliseconds without an acknowledgement after which Linux drops a connection."""


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
