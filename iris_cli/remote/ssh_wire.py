"""The SSH library's connection without what takes time with hundreds of them and serves nobody here.

The library has a thread for each connection, which waits for the interpreter more than for the network. Here one thread
reads all those that are TCP connections of our own.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_DEBUG,
    MSG_DISCONNECT,
    MSG_IGNORE,
    MSG_KEXINIT,
    MSG_SERVICE_ACCEPT,
    MSG_UNIMPLEMENTED,
    cMSG_UNIMPLEMENTED,
)

from iris_cli.remote.sockets import TunedSocket
from iris_cli.remote.ssh_packets import Packets
from iris_cli.remote.ssh_reader import Reader
from iris_cli.remote.ssh_shell import FIRST_NUMBER, OF_CHANNELS, Shell

FOREVER = 1e9
"""For the library's own time-outs, in seconds: the call's deadline is the only one."""

_LIBRARY: Any = paramiko.Transport  # whose published types leave out what is for subclasses
_OF_KEY_EXCHANGE = range(30, 42)
"""Message numbers whose meaning is a matter of the method of exchange."""
_DATA = (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA)

# What the library believes at any size, and takes seconds for. Then all the others would wait.
LARGEST_OF_EXCHANGE = 35000  # bytes; RFC 4253, 6.1
MOST_EXTENSIONS = 64
MOST_POSTPONED = 1024
"""Answers to a server that goes on asking while we want to exchange keys."""


class Wire(paramiko.Transport):
    """A connection, read by `reader` where that is possible, otherwise by a thread of its own."""

    # One pass instead of a cipher and a checksum, the latter compared byte by byte in Python.
    _preferred_ciphers = tuple(sorted(_LIBRARY._preferred_ciphers, key=lambda name: "-gcm@" not in name))
    # Where there is a checksum, it is over what is sent: then the length of a packet is in clear.
    _preferred_macs = tuple(sorted(_LIBRARY._preferred_macs, key=lambda name: "-etm@" not in name))
    _preferred_kex = tuple(
        sorted(_LIBRARY._preferred_kex, key=lambda name: not name.startswith("curve25519-sha256"))
    )
    packetizer: Packets

    def __init__(self, sock: Any, key_types: Collection[str], reader: Reader) -> None:
        """Key types of the server that come first: a host known by one key must not be asked for another."""
        super().__init__(sock, packetizer_class=Packets)
        self._preferred_keys = _first(frozenset(key_types))
        self.banner_timeout = self.auth_timeout = self.channel_timeout = FOREVER
        self._reader = reader
        self._postponed: deque[paramiko.Message] = deque()
        self._shells: dict[int, Shell] = {}
        self._numbers = count(FIRST_NUMBER)
        self.heard_at = time.monotonic()
        self._service: paramiko.Message | None = None
        self.is_watched = False
        if isinstance(sock, socket.socket):
            # Hanging up wakes whoever waits; with a time-out each read is two system calls.
            sock.settimeout(None)

    def await_event(self, event: threading.Event) -> None:
        """Wait for it, or for the end of the connection: that one may come before anybody knows of the event."""
        while not event.wait(1.0) and self.active:
            pass

    def prove(self: Any, user: str, key: paramiko.PKey) -> None:
        """Authenticate. The thread that reads doesn't sign: an agent may ask its user first."""
        done, failures = threading.Event(), list[Exception]()

        def sign() -> None:
            try:
                self.auth_handler._handler_table[MSG_SERVICE_ACCEPT](self._service)
            except Exception as error:  # raised again below
                failures.append(error)
                done.set()

        self._service = None
        self.auth_publickey(user, key, done)
        self.await_event(done)
        if self._service is not None:
            done.clear()
            if isinstance(key, paramiko.AgentKey):  # the user may be away for longer than the call may take
                threading.Thread(target=sign, name="iris-ssh-sign", daemon=True).start()
            else:
                sign()
            self.await_event(done)
        if failures:
            raise failures[0]
        self.auth_handler.wait_for_response(done)

    def shell(self, command: str) -> Shell:
        """A new one, which is being opened. Raises EOFError if the connection has ended."""
        number = next(self._numbers)
        shell = self._shells[number] = Shell(number, command, self._say)
        shell.open()
        if not self.active:  # whatever ended it may not have seen this one
            raise EOFError
        return shell

    def await_shell(self, shell: Shell) -> None:
        """Wait until it is over."""
        self.await_event(shell.over)
        shell.fail(EOFError())  # if it is not, that is why

    def hang_up(self) -> None:
        """Wake everybody who reads, writes or waits. Waits for nothing."""
        if self.is_watched:
            self.active = False
        if isinstance(self.sock, socket.socket):
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Idempotent. A tunnel says goodbye to the jump host, which takes as long as the way there is blocked."""
        self.hang_up()
        if not self.is_watched:  # else the reader closes the socket
            super().close()
            with suppress(EOFError, OSError, paramiko.SSHException):
                self.sock.close()  # the library does it only for a connection that has begun

    # What the library calls

    def start(self) -> None:
        if isinstance(sock := self.sock, TunedSocket):
            self.is_watched = True
            self.packetizer.want_room = lambda wanted: self._reader.await_room(sock, self, wanted=wanted)
            with self.packetizer.together():  # the greeting before any answer to what is there already
                self._greet()
                self._watch(sock)
        else:
            self.packetizer.may_wait = True
            self._greet()
            super().start()

    def _watch(self, sock: TunedSocket) -> None:
        try:
            self._reader.watch(sock, self)
        except BaseException:
            self.is_watched = False  # so that we close it
            raise

    def run(self) -> None:
        while self._take():
            pass
        self._end()

    def _compute_key(self: Any, letter: str, size: int) -> bytes:
        """RFC 4253, 7.2. Those for checksums are for ciphers that have none built in."""
        if letter in "EF" and self.local_cipher == self.remote_cipher and "-gcm@" in self.local_cipher:
            return b""
        key: bytes = _LIBRARY._compute_key(self, letter, size)
        return key

    def _say(self, message: bytes) -> None:
        self._send_user_message(paramiko.Message(message))

    def _send_user_message(self: Any, data: paramiko.Message) -> None:
        """While keys are exchanged the library waits here. Who reads must not: nobody would read the keys."""
        with self.clear_to_send_lock:
            if not self.active:
                return
            if self.clear_to_send.is_set():
                self._send_postponed()
                self._send_message(data)
            elif len(self._postponed) < MOST_POSTPONED:
                self._postponed.append(data)
            else:
                raise paramiko.SSHException("too much to say in the middle of a key exchange")

    def _send_postponed(self: Any) -> None:
        """Holding the lock: what is said later must not come earlier."""
        while self._postponed:
            self._send_message(self._postponed.popleft())

    def _parse_ext_info(self: Any, message: paramiko.Message) -> None:
        if int.from_bytes(message.get_remainder()[:4], "big") > MOST_EXTENSIONS:
            raise paramiko.SSHException("too many extensions")
        _LIBRARY._parse_ext_info(self, message)

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Nothing would be written."""

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        """No algorithm is disabled; the library would look for each, whenever it looks at a list of them."""
        preferred: tuple[str, ...] = getattr(self, f"_preferred_{type_}")
        return preferred

    # What the reader calls

    def ready(self, *, to_read: bool, to_write: bool) -> bool:
        if to_write:
            with suppress(EOFError):  # reading will tell
                self.packetizer.flush()
        return not to_read or (self._take() and not self.packetizer.is_opaque)

    def released(self) -> None:
        if self.active:
            self.is_watched, self.packetizer.may_wait = False, True
            super().start()
        else:
            self._end()

    # Reading

    def _greet(self: Any) -> None:
        self.packetizer.write_all(f"{self.local_version}\r\n".encode())
        self._expect_packet(MSG_KEXINIT)
        self._send_kex_init()

    def _take(self) -> bool:
        """Do what follows from what has come. False at the end."""
        try:
            if self.packetizer.fill():
                self.heard_at = time.monotonic()
                with self.packetizer.together():
                    self._take_messages()
        except BaseException as error:  # noqa: BLE001,RUF100 - whatever a server can make the library stumble over
            self.saved_exception = error if isinstance(error, Exception) else EOFError(str(error))
            self.active = False
        return self.active

    def _take_messages(self: Any) -> None:
        if not self.remote_version:
            if not self.packetizer.holds_greeting():
                return
            self._check_banner()
        while self.active and self.packetizer.holds_message():
            self._handle(*self.packetizer.read_message())
            if self._postponed:
                with self.clear_to_send_lock:
                    if self.clear_to_send.is_set():
                        self._send_postponed()
        if self.packetizer.need_rekey() and not self.in_kex:
            self._send_kex_init()

    def _handle(self: Any, kind: int, message: paramiko.Message) -> None:
        """RFC 4253 and 4254, with the library's own handlers."""
        if kind == MSG_DISCONNECT:
            raise EOFError
        if kind in (MSG_IGNORE, MSG_DEBUG):
            self._enforce_strict_kex(kind)
            return
        if self._expected_packet:
            if kind not in self._expected_packet:
                raise paramiko.SSHException(f"message {kind} out of turn")
            self._expected_packet = ()
            if kind in _OF_KEY_EXCHANGE:
                if len(message.get_remainder()) > LARGEST_OF_EXCHANGE:
                    raise paramiko.SSHException(f"message {kind} is too large")
                self.kex_engine.parse_next(kind, message)
                return
        if kind == MSG_SERVICE_ACCEPT and self.auth_handler is not None:
            self._service = message
            self.auth_handler.auth_event.set()
        elif kind in OF_CHANNELS and self._is_for_shell(kind, message):
            pass
        elif kind in self._handler_table:
            self._handler_table[kind](message)
        elif kind in self._channel_handler_table:
            self._handle_for_channel(kind, message)
        elif self.auth_handler is not None and kind in self.auth_handler._handler_table:
            self.auth_handler._handler_table[kind](message)
        elif kind != MSG_UNIMPLEMENTED:
            reply = paramiko.Message()
            reply.add_byte(cMSG_UNIMPLEMENTED)
            reply.add_int(message.seqno)
            self._send_message(reply)

    def _is_for_shell(self, kind: int, message: paramiko.Message) -> bool:
        number = message.get_int()
        shell = self._shells.get(number)
        if shell is None:
            message.rewind()
            return False
        if not shell.take(kind, message):
            del self._shells[number]
        return True

    def _handle_for_channel(self: Any, kind: int, message: paramiko.Message) -> None:
        number = message.get_int()
        channel = self._channels.get(number)
        if channel is not None:
            self._channel_handler_table[kind](channel, message)
            if kind in _DATA and _unread(channel) > channel.in_window_size:
                raise paramiko.SSHException("more output than was asked for")
        elif number not in self.channels_seen:
            raise paramiko.SSHException(f"no channel has the number {number}")

    def _end(self: Any) -> None:
        """Close, and wake everybody who waits."""
        self.active = False
        for channel in list(self._channels.values()):
            channel._unlink()
        for shell in list(self._shells.values()):
            shell.fail(self.saved_exception or EOFError())
        self.packetizer.close()
        waited_for = [self.completion_event, *self.channel_events.values()]
        if self.auth_handler is not None:
            waited_for.append(self.auth_handler.auth_event)
        for event in waited_for:
            if event is not None:
                event.set()


def _unread(channel: paramiko.Channel) -> int:
    return len(channel.in_buffer) + len(channel.in_stderr_buffer)


@cache
def _first(key_types: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(_LIBRARY._preferred_keys, key=lambda name: _key_type(name) not in key_types))


def _key_type(algorithm: str) -> str:
    """The type of the key that a signature algorithm uses: RSA keys have several."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
