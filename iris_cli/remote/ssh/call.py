"""The deadline of one SSH call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.transport import NoAnswer

R = TypeVar("R")

_UNREACHED = frozenset({"turn", "resolve", "connect"})
_OURS = frozenset({"configuration", "key"})


class Abandoned(Exception):  # noqa: N818 - not an error: no caller waits for this work any more
    """The caller has left at the deadline; the work must stop."""


class SshCall(Generic[R]):
    """A call whose work runs in a separate thread and is abandoned at the deadline.

    Nothing can block the caller: no resolver, agent or file system without timeouts, no server that stops answering.
    The work reports its step (`enter`), how to abort it (`guard`), when it is connected (the second timeout starts) and
    when it starts to send. After the caller has left each of these raises Abandoned: late work changes nothing.
    """

    def __init__(
        self,
        connect_timeout: float,
        timeout: float = 0.0,
    ) -> None:
        """Set both timeouts in seconds."""
        self._condition = threading.Condition()
        self._connect_deadline = SYSTEM_CLOCK.monotonic() + connect_timeout
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._deadline = self._wakes_at = self._connect_deadline
        self._is_connected = False
        self._left = False
        self._done = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._cut: Callable[[], None] | None = None
        self._step: Callable[[], str] = lambda: "configuration"
        self._place = "this machine"
        self.sent = False

    def perform(self, work: Callable[[], R]) -> R:
        """Return the result of `work` or raise its exception; raise NoAnswer at the deadline."""
        threading.Thread(target=self._run, args=(work,), name="iris-ssh-call", daemon=True).start()
        try:
            self._wait()
        finally:
            if not self._done and self._cut is not None:
                self._cut()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # done without an error: this is what work returned

    def remaining(self) -> float:
        """Return the seconds until the deadline of the current phase."""
        return self._deadline - SYSTEM_CLOCK.monotonic()

    def enter(self, step: str | Callable[[], str], place: str = "") -> None:
        """Record the current step; if it is a function, it is called at the deadline."""
        with self._condition:
            self._check()
            self._step = (lambda: step) if isinstance(step, str) else step
            self._place = place or self._place

    def guard(self, cut: Callable[[], None] | None) -> None:
        """Call `cut`, which must not block, if the deadline passes; None removes it."""
        with self._condition:
            self._check()
            self._cut = cut

    def connecting(self) -> None:
        """Start the connect phase: the first timeout applies."""
        self._turn_to(self._connect_deadline, is_connected=False)

    def connected(self) -> None:
        """Start the second timeout."""
        self._turn_to(SYSTEM_CLOCK.monotonic() + self._timeout, is_connected=True)

    def progressed(self, latest: float) -> None:
        """Restart the second timeout after progress, but end no later than `latest` (monotonic)."""
        self._turn_to(min(SYSTEM_CLOCK.monotonic() + self._timeout, latest), is_connected=True)

    def sending(self) -> None:
        """Record that data may have been sent from now on."""
        with self._condition:
            self._check()
            self.sent = True

    @property
    def step(self) -> str:
        return self._step()

    @property
    def place(self) -> str:
        return self._place

    @contextmanager
    def turn(
        self, lock: threading.Lock | threading.Semaphore, place: str = "", step: str = "turn"
    ) -> Iterator[None]:
        """Hold `lock`; wait for it until the deadline at most."""
        self.enter(step, place)
        if not lock.acquire(timeout=max(self.remaining(), 0)):
            raise Abandoned
        try:
            yield
        finally:
            lock.release()

    def _turn_to(self, deadline: float, *, is_connected: bool) -> None:
        with self._condition:
            self._check()
            self._deadline, self._is_connected = deadline, is_connected
            if deadline < self._wakes_at:  # a later deadline needs no wake-up
                self._condition.notify_all()

    def _check(self) -> None:
        """Raise Abandoned if the caller has left. Call with the lock held."""
        if self._left:
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
            if not self._left:
                self._result, self._error, self._done = result, error, True
                self._condition.notify_all()

    def _wait(self) -> None:
        """Wait for the end of the work, the deadline or Ctrl-C. Nothing is sent after that."""
        with self._condition:
            try:
                while not self._done and (left := self.remaining()) > 0:
                    # Wake up within the second timeout, so that its start needs no notification.
                    left = min(left, self._timeout or left)
                    self._wakes_at = SYSTEM_CLOCK.monotonic() + left
                    self._condition.wait(left)
                if not self._done:
                    raise self._overdue()
            finally:
                self._left = True

    def _overdue(self) -> NoAnswer:
        step = self._step()
        if step in _OURS:
            kind = SilenceKind.LOCAL
        else:
            kind = SilenceKind.UNREACHABLE if step in _UNREACHED else SilenceKind.TIMEOUT
        seconds = self._timeout if self._is_connected else self._connect_timeout
        return NoAnswer(kind, step, f"no answer from {self._place} within {seconds:g} s", sent=self.sent)
