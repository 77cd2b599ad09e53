"""A shell on the other side, and the script that it is fed with.

All that follows from the server's messages is done by the thread that reads the connection, which waits for nothing: so
whoever called is woken once, when all is over, and not at each step.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import paramiko
from paramiko.common import (
    CONNECTION_FAILED_CODE,
    DEFAULT_MAX_PACKET_SIZE,
    DEFAULT_WINDOW_SIZE,
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_OPEN,
    MSG_CHANNEL_OPEN_FAILURE,
    MSG_CHANNEL_OPEN_SUCCESS,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_SUCCESS,
    MSG_CHANNEL_WINDOW_ADJUST,
)

from iris_cli.core.observations import SilenceKind
from iris_cli.remote.transport import NoAnswer

OF_CHANNELS = range(MSG_CHANNEL_OPEN_SUCCESS, MSG_CHANNEL_FAILURE + 1)
"""Numbers of the messages that are for one channel (RFC 4254, 9)."""
FIRST_NUMBER = 1 << 24
"""Channels with lower numbers are the library's."""
SMALLEST_PACKET = 1024
"""Bytes, without the headers. RFC 4254 has no bound, and of a server that takes one byte at a time each would be a
message of its own, all of them sent by the thread that reads, for which the other hosts wait.
"""
_STDERR = 1

Send = Callable[[bytes], None]


def _nothing() -> None:
    """Nothing is to be done."""


class Shell:
    """One channel with a command that reads a script (RFC 4254, 5 and 6). It is opened at once.

    `over` is set when the server has closed it, when the connection has ended, or when the call can't go on; then
    `failure` says why, if the script didn't come to its end, and `out`, `err` and `status` (-1 if none came) what it
    left behind.
    """

    def __init__(self, number: int, command: str, send: Send) -> None:
        """`send` sends a message; when keys are exchanged, later. It never waits."""
        self.out = bytearray()
        self.err = bytearray()
        self.status = -1
        self.failure: BaseException | None = None
        self.over = threading.Event()
        self.news: threading.Event | None = None
        """Set when more of a payload may be sent, or nothing any more; None where there is none."""
        self.was_fed = False
        self.is_ready = False
        """The server has agreed to run the command."""
        self._number = number
        self._command = command.encode()
        self._send = send
        self._lock = threading.RLock()  # the script comes from another thread
        self._to = b""
        self._room = 0  # bytes that the server takes
        self._largest = 0
        self._window = DEFAULT_WINDOW_SIZE  # bytes that the server may send
        self._script: memoryview | None = None
        self._mark = b""  # on which the payload begins
        self._marked = 0  # bytes of `out` in which it isn't
        self._is_asked = False  # for the payload
        self._is_last = False  # all that we have to say and its end are sent
        self._has_ended = False  # the server has said that nothing more will come
        self._is_closed = False  # by us
        self._limit = 0  # bytes of each stream, once there is a script
        self._before: Callable[[], None] = _nothing
        self._after: Callable[[], None] | None = None

    @property
    def step(self) -> str:
        """What is waited for."""
        if not self.was_fed:
            return "channel"
        if not self._is_last:
            if self._is_asked:
                return "payload"
            return "output" if self._script is None else "script"
        return "exit status" if self._has_ended else "output"

    def open(self) -> None:
        sizes = struct.pack(">III", self._number, self._window, DEFAULT_MAX_PACKET_SIZE)
        self._send(bytes([MSG_CHANNEL_OPEN]) + _string(b"session") + sizes)

    def feed(
        self,
        script: bytes,
        limit: int,
        *,
        before: Callable[[], None],
        after: Callable[[], None] | None,
        mark: bytes = b"",
    ) -> None:
        """Send the script when the shell is there; at most `limit` bytes are taken of each of its streams.

        `before` is called when all is ready, and if it raises nothing is sent; `after` when all was sent. With a
        `mark` a payload follows (`send`, `finish`), as soon as that is a line of what the shell says.
        """
        with self._lock:
            self._limit, self._before, self._after = limit, before, after
            if mark:
                self._mark, self.news = mark + b"\n", threading.Event()
            self._script = memoryview(script)
        self._go_on()

    def is_asked(self) -> bool:
        """Whether the payload may begin, or never will; if not `news` comes then."""
        with self._lock:
            if self.news is not None and not (self._is_asked or self.over.is_set()):
                self.news.clear()
                return False
            return True

    def send(self, payload: memoryview) -> int:
        """Send as much of it as the server takes now, at most a packet; returns how many bytes. Never waits.

        If there is no room `news` comes when there is.
        """
        with self._lock:
            size = min(self._room, self._largest, len(payload)) if self._is_asked and self._may_speak() else 0
            if size:
                self._room -= size
                self._send(bytes([MSG_CHANNEL_DATA]) + self._to + _string(payload[:size]))
            elif self.news is not None and not self.over.is_set():
                self.news.clear()
            return size

    def finish(self) -> None:
        """The payload is at its end."""
        with self._lock:
            if self._may_speak():
                self._say_last()

    def _may_speak(self) -> bool:
        return self.is_ready and not (self._is_last or self._is_closed or self.over.is_set())

    def _say_last(self) -> None:
        self._is_last = True
        self._send(bytes([MSG_CHANNEL_EOF]) + self._to)

    def _tell(self) -> None:
        if self.news is not None:
            self.news.set()

    def close(self) -> None:
        """Tell the server that nothing more is wanted. Idempotent."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first and self._to:
            self._send(bytes([MSG_CHANNEL_CLOSE]) + self._to)

    def fail(self, error: BaseException) -> None:
        """Nothing more will come."""
        if not self.over.is_set():
            self.failure = error
            self._end()

    def _end(self) -> None:
        with self._lock:  # whoever is about to wait for news has not looked yet, or will get them
            self.over.set()
            self._tell()

    def take(self, kind: int, message: paramiko.Message) -> bool:
        """What the server says; False if that was its last word. Raises SSHException if it must not say so."""
        if bool(self._to) == (kind in (MSG_CHANNEL_OPEN_SUCCESS, MSG_CHANNEL_OPEN_FAILURE)):
            raise paramiko.SSHException(f"message {kind} for a channel out of turn")
        if kind == MSG_CHANNEL_OPEN_SUCCESS:
            self._opened(message)
        elif kind == MSG_CHANNEL_OPEN_FAILURE:
            code = message.get_int()
            self.fail(paramiko.ChannelException(code, CONNECTION_FAILED_CODE.get(code, "(unknown code)")))
            return False
        elif kind == MSG_CHANNEL_WINDOW_ADJUST:
            with self._lock:
                self._room += message.get_int()
                self._tell()
            self._go_on()
        elif kind in (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA):
            self._hear(kind, message)
        elif kind == MSG_CHANNEL_EOF:
            self._has_ended = True
        elif kind == MSG_CHANNEL_REQUEST:
            self._asked(message)
        elif kind == MSG_CHANNEL_SUCCESS:
            self.is_ready = True
            self._go_on()
        elif kind == MSG_CHANNEL_FAILURE:
            self.fail(paramiko.SSHException("the server doesn't run commands"))
            self.close()
        elif kind == MSG_CHANNEL_CLOSE:
            self._closed()
            return False
        return True

    def _opened(self, message: paramiko.Message) -> None:
        self._to = message.get_bytes(4)
        with self._lock:
            self._room, self._largest = message.get_int(), min(message.get_int(), DEFAULT_MAX_PACKET_SIZE)
        if self._largest < SMALLEST_PACKET:
            raise paramiko.SSHException(f"the server takes only {self._largest} bytes at a time")
        if self._is_closed:
            self._send(bytes([MSG_CHANNEL_CLOSE]) + self._to)
        else:
            run = _string(b"exec") + b"\1" + _string(self._command)
            self._send(bytes([MSG_CHANNEL_REQUEST]) + self._to + run)

    def _go_on(self) -> None:
        """Send what there is room for."""
        after = None
        with self._lock:
            if self._script is None or not self._may_speak():
                return
            if not self.was_fed:
                before, self._before = self._before, _nothing
                try:
                    before()
                except BaseException as error:
                    self.fail(error)
                    raise
                self.was_fed = True
            while self._script and (size := min(self._room, self._largest, len(self._script))):
                piece, self._script = self._script[:size], self._script[size:]
                self._room -= size
                self._send(bytes([MSG_CHANNEL_DATA]) + self._to + _string(piece))
            if not self._script:
                self._script = None
                if self.news is None:
                    self._say_last()
                after, self._after = self._after, None
        if after is not None:
            after()

    def _hear(self, kind: int, message: paramiko.Message) -> None:
        stream = self.out
        if kind == MSG_CHANNEL_EXTENDED_DATA:
            stream = self.err if message.get_int() == _STDERR else bytearray()
        data = message.get_binary()
        self._window -= len(data)
        if self._window < 0:
            raise paramiko.SSHException("more output than was asked for")
        if self.over.is_set():
            return
        stream += data
        if self.was_fed and self._is_too_long():
            return
        if self._mark:
            self._listen_for_mark()
        if self.was_fed and self._window < DEFAULT_WINDOW_SIZE // 2:
            # Not for one that waits for its script: nobody reads what it says.
            more = DEFAULT_WINDOW_SIZE - self._window
            self._window += more
            self._send(bytes([MSG_CHANNEL_WINDOW_ADJUST]) + self._to + struct.pack(">I", more))

    def _listen_for_mark(self) -> None:
        """It is a line: what is in another one doesn't count."""
        found = self.out.find(self._mark, self._marked)
        self._marked = max(0, len(self.out) - len(self._mark))
        if found == 0 or (found > 0 and self.out[found - 1 : found] == b"\n"):
            with self._lock:
                self._mark, self._is_asked = b"", True
                self._tell()

    def _is_too_long(self) -> bool:
        for name, stream in (("stdout", self.out), ("stderr", self.err)):
            if len(stream) > self._limit:
                self.fail(
                    NoAnswer(SilenceKind.PROTOCOL, "output", f"more than {self._limit} bytes on {name}")
                )
                return True
        return False

    def _asked(self, message: paramiko.Message) -> None:
        what, wants_answer = message.get_binary(), message.get_boolean()
        if what == b"exit-status":
            self.status = message.get_int()
        elif wants_answer:
            self._send(bytes([MSG_CHANNEL_FAILURE]) + self._to)

    def _closed(self) -> None:
        self.close()
        if not self.was_fed:
            self.fail(paramiko.SSHException("the channel was closed"))
        elif not self._is_too_long():  # what was said before the script came counts, too
            self._end()


def _string(data: bytes | memoryview) -> bytes:
    return struct.pack(">I", len(data)) + data
