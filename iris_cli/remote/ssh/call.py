"""An SSH call with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.transport import NoAnswer

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
        return NoAnswer(kind, step, f"no answer from {self.peer} within {seconds:g} s", sent=self.sent)
