"""A call with a deadline, and the script that it runs in a shell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, max_sending_time, read_chunks

if TYPE_CHECKING:
    from paramiko import Channel

R = TypeVar("R")

_CONNECT_STEPS = frozenset({"turn", "resolve", "connect"})
_LOCAL_STEPS = frozenset({"configuration", "key"})


class Abandoned(Exception):  # noqa: N818 - not an error
    """`SshCall.perform` has returned, at the deadline or by Ctrl-C, so the work must stop."""


class SshCall(Generic[R]):
    """A call whose work runs in a separate thread. `perform` returns at the deadline, even if the work blocks.

    The work reports its step (`enter`), a function that aborts it (`guard`), that it is connected (`connected`, which
    starts the second timeout), and that it begins to send (`sending`). After `perform` has returned, each of these
    methods raises Abandoned.
    """

    def __init__(self, connect_timeout: float, timeout: float = 0.0) -> None:
        """Both timeouts are in seconds."""
        self._condition = threading.Condition()
        self._connect_deadline = SYSTEM_CLOCK.monotonic() + connect_timeout
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._deadline = self._wakes_at = self._connect_deadline
        self._is_connected = False
        self._caller_has_left = False
        self._done = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._abort: Callable[[], None] | None = None
        self._step: Callable[[], str] = lambda: "configuration"
        self.peer = "this machine"  # the host that must answer
        self.sent = False

    def perform(self, work: Callable[[], R]) -> R:
        """Return the result of `work` or raise its exception. Raise NoAnswer at the deadline."""
        threading.Thread(target=self._run, args=(work,), name="iris-ssh-call", daemon=True).start()
        try:
            self._wait()
        finally:
            if not self._done and self._abort is not None:
                self._abort()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # the work has returned an R

    def remaining(self) -> float:
        """Return the seconds until the deadline of the current phase."""
        return self._deadline - SYSTEM_CLOCK.monotonic()

    def enter(self, step: str | Callable[[], str], peer: str = "") -> None:
        """Record the current step, a text or a function called at the deadline. `peer` is the host that must answer."""
        with self._condition:
            self._check()
            self._step = (lambda: step) if isinstance(step, str) else step
            self.peer = peer or self.peer

    def guard(self, abort: Callable[[], None] | None) -> None:
        """Set the function to call at the deadline; None removes it. The function must not block."""
        with self._condition:
            self._check()
            self._abort = abort

    def connecting(self) -> None:
        """Start the connect phase, to which the first timeout applies."""
        self._set_deadline(self._connect_deadline, is_connected=False)

    def connected(self) -> None:
        """Start the second timeout."""
        self._set_deadline(SYSTEM_CLOCK.monotonic() + self._timeout, is_connected=True)

    def progressed(self, latest: float) -> None:
        """Restart the second timeout. It does not extend beyond the monotonic time `latest`."""
        self._set_deadline(min(SYSTEM_CLOCK.monotonic() + self._timeout, latest), is_connected=True)

    def sending(self) -> None:
        """Record that data may have been sent from now on."""
        with self._condition:
            self._check()
            self.sent = True

    @property
    def step(self) -> str:
        return self._step()

    @contextmanager
    def holding(
        self, lock: threading.Lock | threading.Semaphore, peer: str = "", step: str = "turn"
    ) -> Iterator[None]:
        """Wait for `lock` until the deadline, and hold it during the block. Raises Abandoned."""
        self.enter(step, peer)
        if not lock.acquire(timeout=max(self.remaining(), 0)):
            raise Abandoned
        try:
            yield
        finally:
            lock.release()

    def _set_deadline(self, deadline: float, *, is_connected: bool) -> None:
        with self._condition:
            self._check()
            self._deadline, self._is_connected = deadline, is_connected
            if deadline < self._wakes_at:  # a later deadline needs no wake-up
                self._condition.notify_all()

    def _check(self) -> None:
        """Raise Abandoned if `perform` has returned. Call it with the lock held."""
        if self._caller_has_left:
            raise Abandoned

    def _run(self, work: Callable[[], R]) -> None:
        result, error = None, None
        try:
            result = work()
        except Abandoned:
            return
        except BaseException as raised:  # noqa: BLE001,RUF100 - raised again in the caller's thread
            error = raised
        with self._condition:
            if not self._caller_has_left:
                self._result, self._error, self._done = result, error, True
                self._condition.notify_all()

    def _wait(self) -> None:
        """Wait for the end of the work, the deadline or Ctrl-C. Afterwards the work can't send any more."""
        with self._condition:
            try:
                while not self._done and (remaining := self.remaining()) > 0:
                    # Wait no longer than the second timeout, so that its start needs no notification.
                    remaining = min(remaining, self._timeout or remaining)
                    self._wakes_at = SYSTEM_CLOCK.monotonic() + remaining
                    self._condition.wait(remaining)
                if not self._done:
                    raise self._timeout_error()
            finally:
                self._caller_has_left = True

    def _timeout_error(self) -> NoAnswer:
        step = self._step()
        if step in _LOCAL_STEPS:
            kind = SilenceKind.LOCAL
        else:
            kind = SilenceKind.UNREACHABLE if step in _CONNECT_STEPS else SilenceKind.TIMEOUT
        seconds = self._timeout if self._is_connected else self._connect_timeout
        shown = f"{seconds:.3g}" if seconds < 1000 else f"{seconds:.0f}"
        return NoAnswer(kind, step, f"{self.peer}: timeout after {shown} s", sent=self.sent)


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
