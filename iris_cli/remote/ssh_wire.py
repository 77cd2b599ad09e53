"""The SSH library's connection without what takes time with hundreds of them and serves nobody here.

The library has a thread for each connection, which waits for the interpreter more than for the network. Here one thread
reads all those that are TCP connections of our own.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext, suppress
from itertools import count
from typing import Any

import paramiko
from msgspec import Struct
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

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.remote.sockets import TunedSocket
from iris_cli.remote.ssh_exchange import Exchange
from iris_cli.remote.ssh_packets import Packets
from iris_cli.remote.ssh_reader import Reader
from iris_cli.remote.ssh_shell import FIRST_NUMBER, OF_CHANNELS, Shell

_SENDERS = threading.BoundedSemaphore(2)
"""Threads that send payloads at the same time. With as many as there are hosts the one that reads would have its turn
at the interpreter too seldom; none of them waits for the network meanwhile.
"""
FOREVER = 1e9
"""For the library's own time-outs, in seconds: the call's deadline is the only one."""

_LIBRARY: Any = paramiko.Transport  # whose published types leave out what is for subclasses
_OF_KEY_EXCHANGE = range(30, 42)
"""Message numbers whose meaning is a matter of the method of exchange."""
_DATA = (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA)

# What the library believes at any size, and takes seconds for. Then all the others would wait.
LARGEST_OF_EXCHANGE = 35000  # bytes; RFC 4253, 6.1
MOST_POSTPONED = 1024
"""Answers to a server that goes on asking while we want to exchange keys."""


class Proof(Struct, frozen=True):
    """Who we are, for a server whose host key `is_for` (in SSH wire format) knows to be the right one."""

    user: str
    key: paramiko.PKey
    is_for: Callable[[bytes], bool]


class Wire(Exchange):
    """A connection, read by `reader` where that is possible, otherwise by a thread of its own."""

    packetizer: Packets

    def __init__(self, sock: Any, key_types: Collection[str], reader: Reader) -> None:
        super().__init__(sock, key_types, Packets)
        self.banner_timeout = self.auth_timeout = self.channel_timeout = FOREVER
        self._reader = reader
        self._postponed: deque[paramiko.Message] = deque()
        self._shells: dict[int, Shell] = {}
        self._numbers = count(FIRST_NUMBER)
        self.heard_at = SYSTEM_CLOCK.monotonic()
        self._service: paramiko.Message | None = None
        self._awaits_service = self._signs_apart = False
        self._proof: Proof | None = None
        self._begun_with: paramiko.PKey | None = None
        self._met = threading.Event()
        self.is_watched = False
        if isinstance(sock, socket.socket):
            # Hanging up wakes whoever waits; with a time-out each read is two system calls.
            sock.settimeout(None)

    def await_event(self, event: threading.Event) -> None:
        """Wait for it, or for the end of the connection: that one may come before anybody knows of the event."""
        while not event.wait(1.0) and self.active:
            pass

    @property
    def stage(self) -> str:
        """Of what comes before a first channel."""
        if self.auth_handler is not None:
            return "authentication"
        return "key exchange" if self.remote_version else "banner"

    def meet(self, proof: Proof | None) -> None:
        """Exchange keys. With a proof the server is given it at once, and its verdict waited for: one wait, not two."""
        self.active = True
        self._proof = proof
        self.start()
        self.await_event(self._met)

    def prove(self: Any, user: str, key: paramiko.PKey) -> None:
        """Authenticate, or bring to its end what was begun with this key."""
        answered = self._met
        if self._begun_with is not key:
            answered = threading.Event()
            self._begin_proof(user, key, answered)
        handler, self._begun_with = self.auth_handler, None
        if handler is None:
            raise EOFError
        self.await_event(answered)
        if self._service is not None:
            answered.clear()
            self._sign_apart(handler, answered)
        handler.wait_for_response(answered)

    def _begin_proof(self, user: str, key: paramiko.PKey, answered: threading.Event) -> None:
        self._awaits_service, self._signs_apart = True, isinstance(key, paramiko.AgentKey)
        self.auth_publickey(user, key, answered)

    def _sign_apart(self, handler: Any, answered: threading.Event) -> None:
        """In another thread: an agent may ask its user first, who may be away for longer than the call may take."""
        failures: list[Exception] = []
        accepted, self._service = self._service, None

        def sign() -> None:
            try:
                handler._handler_table[MSG_SERVICE_ACCEPT](accepted)
            except Exception as error:  # raised again below
                failures.append(error)
                answered.set()

        threading.Thread(target=sign, name="iris-ssh-sign", daemon=True).start()
        self.await_event(answered)
        if failures:
            raise failures[0]

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

    def send_payload(
        self, shell: Shell, chunks: Callable[[], Iterable[bytes]], sent: Callable[[], object]
    ) -> None:
        """Once it is asked for send it as it is taken there, in the caller's thread; `sent` is told of each piece.

        Returns early if the shell is over. No more is kept than one chunk, and what the socket has no room for.
        """
        while shell.news is not None and not shell.is_asked() and self.active:
            self.await_event(shell.news)
        for chunk in () if shell.over.is_set() else chunks():
            rest = memoryview(chunk)
            while rest:
                if shell.over.is_set() or not self.active:
                    return
                self.await_event(self.clear_to_send)
                self.await_event(self.packetizer.drained)
                with _SENDERS if self.is_watched else nullcontext():
                    size = shell.send(rest)
                if size:
                    rest = rest[size:]
                    sent()
                elif shell.news is not None:
                    self.await_event(shell.news)
        shell.finish()

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

    def _parse_newkeys(self: Any, message: paramiko.Message) -> None:
        _LIBRARY._parse_newkeys(self, message)
        if self._met.is_set() or self.auth_handler is not None:
            return
        proof, self._proof = self._proof, None
        if proof is not None and proof.is_for(self.get_remote_server_key().asbytes()):
            self._begun_with = proof.key
            self._begin_proof(proof.user, proof.key, self._met)
        else:
            self._met.set()

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

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Nothing would be written."""

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
                self.heard_at = SYSTEM_CLOCK.monotonic()
                with self.packetizer.together():
                    self._take_messages()
        except BaseException as error:  # noqa: BLE001,RUF100 - whatever a server can make the library stumble over
            reason = error if isinstance(error, Exception) else EOFError(str(error))
            self.saved_exception = reason.with_traceback(None)
            self.active = False
        return self.active

    def _take_messages(self: Any) -> None:
        if not self.remote_version:
            if not self.packetizer.holds_greeting():
                return
            self._check_banner()
        while self.active and self.packetizer.holds_message():
            self._take_message(*self.packetizer.read_message())
            if self._postponed:
                with self.clear_to_send_lock:
                    if self.clear_to_send.is_set():
                        self._send_postponed()
        if self.packetizer.need_rekey() and not self.in_kex:
            self._send_kex_init()

    def _take_message(self: Any, kind: int, message: paramiko.Message) -> None:
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
        if kind == MSG_SERVICE_ACCEPT:
            self._serve_proof(message)
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

    def _serve_proof(self: Any, message: paramiko.Message) -> None:
        """Sign who we are, once: a server that says so without end would have us sign without end."""
        if not self._awaits_service:
            raise paramiko.SSHException(f"message {MSG_SERVICE_ACCEPT} out of turn")
        self._awaits_service = False
        if self._signs_apart:
            self._service = message
            self.auth_handler.auth_event.set()
        else:
            self.auth_handler._handler_table[MSG_SERVICE_ACCEPT](message)

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
        waited_for = [self._met, self.completion_event, *self.channel_events.values()]
        if self.auth_handler is not None:
            waited_for.append(self.auth_handler.auth_event)
        for event in waited_for:
            if event is not None:
                event.set()
        self._let_go()

    def _let_go(self: Any) -> None:
        """Of all that leads back here: a hundred thousand bytes would wait for somebody to look for such circles."""
        self._shells.clear()
        self._handler_table.clear()
        self.packetizer.want_room = bool
        if self.auth_handler is not None and self.auth_handler.is_authenticated():
            self.auth_handler = None


def _unread(channel: paramiko.Channel) -> int:
    return len(channel.in_buffer) + len(channel.in_stderr_buffer)
