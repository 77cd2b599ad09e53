"""Run a script in a remote shell."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.ssh.call import SshCall
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, max_sending_time, read_chunks

if TYPE_CHECKING:
    from paramiko import Channel

PIECE = 32 << 10
POLL_INTERVAL = 0.25
"""Seconds between checks that the connection is alive."""
_SEND_WAIT = 0.05
"""Seconds to wait for sending before output is read, because a shell that can't write its output reads no input."""


class ScriptRun:
    """Sends a script and its payloads to a shell, and collects the output. Subclasses send and receive the bytes.

    Raises NoAnswer for too much output or an unreadable payload.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._out = bytearray()
        self._err = bytearray()
        self._searched = 0  # number of bytes of stdout that were searched for the mark
        self.step = "script"

    def send(self, call: SshCall[Any]) -> None:
        """Send the script. Send each payload that the script requests. Then close stdin."""
        payload = self._script.payload
        latest = SYSTEM_CLOCK.monotonic() + max(call.remaining(), 0)
        latest += max_sending_time(payload.total) if payload is not None else 0
        self._send(self._script.text, lambda: None)
        self.step = "output"
        while payload is not None and self._await_mark(payload.mark + b"\n"):
            self.step = "payload"
            if not all(self._send(chunk, lambda: call.progressed(latest)) for chunk in read_chunks(payload)):
                break
            self.step = "output"
            payload = payload.next
        with suppress(OSError):  # the shell may have ended without reading everything
            self._close_input()
        self.step = "output"

    def _send(self, data: bytes, progressed: Callable[[], None]) -> bool:
        """Send the data, and call `progressed` after each part. Return False if the shell accepts no more input."""
        raise NotImplementedError

    def _close_input(self) -> None:
        raise NotImplementedError

    def _read(self) -> bool:
        """Wait for output for a short time, and collect it. Return False at the end of stdout."""
        raise NotImplementedError

    def _await_mark(self, mark: bytes) -> bool:
        """Wait until a line of stdout is the mark. Return False if stdout ends before."""
        while True:
            found = self._out.find(mark, self._searched)
            self._searched = max(0, len(self._out) - len(mark))
            if found == 0 or (found > 0 and self._out[found - 1 : found] == b"\n"):
                return True
            if not self._read():
                return False

    def _take(self, data: bytes, stream: bytearray, name: str) -> None:
        """Append output to `stream`, which messages call `name`. Raises NoAnswer beyond the limit."""
        stream += data
        limit = self._script.limit
        if len(stream) > limit:
            raise NoAnswer(SilenceKind.PROTOCOL, "output", f"more than {limit} bytes on {name}")


class ChannelRun(ScriptRun):
    """Runs a script in the shell on a channel. Raises EOFError if the connection is lost."""

    def __init__(self, channel: Channel, script: Script, is_alive: Callable[[], bool]) -> None:
        super().__init__(script)
        self._channel = channel
        self._is_alive = is_alive

    def finish(self) -> ScriptResult:
        """Read the output to its end and return it."""
        while self._read():
            pass
        self._drain_stderr()
        if not self._channel.eof_received:
            raise EOFError
        self.step = "exit status"
        while not self._channel.status_event.wait(POLL_INTERVAL) and self._is_alive():
            pass
        status = self._channel.recv_exit_status() if self._channel.status_event.is_set() else -1
        self._channel.close()
        return ScriptResult(stdout=bytes(self._out), stderr=bytes(self._err), status=status)

    def _send(self, data: bytes, progressed: Callable[[], None]) -> bool:
        rest = memoryview(data)
        self._channel.settimeout(_SEND_WAIT)
        while rest:
            try:
                size = self._channel.send(bytes(rest[:PIECE]))
            except TimeoutError:
                if not self._is_alive():
                    raise EOFError from None
                size = -1
            except OSError:  # the channel was closed
                return False
            if not size:
                return False
            if size > 0:
                rest = rest[size:]
                progressed()
            while self._channel.recv_ready():
                self._take(self._channel.recv(PIECE), self._out, "stdout")
            self._drain_stderr()
        return True

    def _read(self) -> bool:
        self._channel.settimeout(POLL_INTERVAL)
        try:
            data = self._channel.recv(PIECE)
        except TimeoutError:
            if not self._is_alive():
                raise EOFError from None
        else:
            if not data:
                return False
            self._take(data, self._out, "stdout")
        self._drain_stderr()
        return True

    def _close_input(self) -> None:
        self._channel.shutdown_write()

    def _drain_stderr(self) -> None:
        while self._channel.recv_stderr_ready():
            self._take(self._channel.recv_stderr(PIECE), self._err, "stderr")
