"""The SSH library's reader and writer of packets, with the habits broken that take time or make others wait."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import paramiko
from paramiko.packet import Packetizer

LARGEST_PACKET = 256 << 10
"""As in OpenSSH; the library would believe any length."""
READ_AHEAD = 64 << 10
MOST_UNSENT = 64 << 20
"""Bytes kept for a server that takes nothing. One that lets us send as much as it likes would fill the memory."""

_GREETING = re.compile(rb"^SSH-.*\n", re.MULTILINE)


class Packets(Packetizer):
    """The packets of a connection.

    Unless it `may_wait` it never does. Then what is to be read must be there (`fill`, `holds_message`), and what there
    is no room for is kept until `flush`, which `want_room` asks for.
    """

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self.may_wait = False
        self.is_opaque = False
        """How long a packet is can't be known without decrypting its beginning."""
        self.want_room: Callable[[bool], object] = bool
        self._sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self._out_lock = threading.Lock()
        self._wants_room = False
        self._held = 0
        self.drained = threading.Event()
        """Whether all that was written is on its way."""
        self.drained.set()

    def fill(self) -> bool:
        """Read what has come; False if nothing has. Raises EOFError, OSError."""
        return (self.is_opaque and bool(self._in)) or self._receive()

    def holds_greeting(self) -> bool:
        """Whether the line has come in which the server says who it is."""
        if len(self._in) > LARGEST_PACKET:
            raise paramiko.SSHException("no greeting")
        return _GREETING.search(self._in) is not None

    def holds_message(self) -> bool:
        """Whether a whole one has come, or if that can't be known and the rest may be waited for, some of one."""
        if self.is_opaque:
            return self.may_wait and bool(self._in)
        if len(self._in) < 4:
            return False
        length = int.from_bytes(self._in[:4], "big")
        if length > LARGEST_PACKET:
            raise paramiko.SSHException(f"packet of {length} bytes")
        return len(self._in) >= 4 + length + self.get_mac_size_in()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written meanwhile goes out as one: each piece by itself costs both sides a system call and more."""
        with self._out_lock:
            self._held += 1
        try:
            yield
        finally:
            with self._out_lock:
                self._held -= 1
            self.flush()

    def flush(self) -> None:
        """Send what there is room for. Raises EOFError."""
        with self._out_lock:
            try:
                while self._out:
                    del self._out[: self._sock.send(self._out, socket.MSG_DONTWAIT)]
            except BlockingIOError:
                pass
            except OSError as error:
                raise EOFError from error
            if self._wants_room != bool(self._out):
                self._wants_room = bool(self._out)
                self.drained.clear() if self._wants_room else self.drained.set()
                self.want_room(self._wants_room)

    # What the library calls

    def readline(self, timeout: float) -> str:  # noqa: ARG002 - the greeting is there
        line, _, self._in = self._in.partition(b"\n")
        return line.rstrip(b"\r").decode()

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:  # noqa: ARG002 - the library's own
        if n > LARGEST_PACKET:
            raise paramiko.SSHException(f"packet of {n} bytes")
        while len(self._in) < n:
            if not self.may_wait:
                raise paramiko.SSHException("a packet that is too short")
            if not self._receive() and self.closed:
                raise EOFError
        data = bytes(self._in[: max(n, 0)])
        del self._in[: len(data)]
        return data

    def write_all(self, out: Any) -> None:
        if self.may_wait:
            super().write_all(bytes(self._out) + out)
            self._out.clear()
            return
        with self._out_lock:
            if len(self._out) > MOST_UNSENT:
                raise EOFError
            self._out += out
        if not self._held:
            self.flush()

    def set_inbound_cipher(self, *args: Any, **named: Any) -> None:
        super().set_inbound_cipher(*args, **named)
        self.is_opaque = not (named.get("aead") or named.get("etm"))

    def start_handshake(self, timeout: float) -> None:
        """No timer thread: it would keep the interpreter from exiting for 15 s."""

    def close(self) -> None:
        """Without a word: a tunnel says goodbye through a connection that may be gone."""
        with suppress(EOFError, OSError, paramiko.SSHException), self._out_lock:  # nobody sends to its number
            super().close()

    def _receive(self) -> bool:
        try:
            data = self._sock.recv(READ_AHEAD, *(() if self.may_wait else (socket.MSG_DONTWAIT,)))
        except (BlockingIOError, TimeoutError):
            return False
        if not data:
            raise EOFError
        self._in += data
        return True
