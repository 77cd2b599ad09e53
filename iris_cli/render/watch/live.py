"""A terminal's second screen that is painted again and again, and given back as it was, whatever ends it.

A thread paints, so that ages go on while the command waits for a lock or for workers, and a new size shows at once.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

TICK = 1.0
"""Seconds until it is painted again though nothing has changed but the time."""

_SMALL = (80, 24)  # columns and lines of a terminal that does not know its own
_PATIENCE = 2.0  # seconds until a terminal that takes nothing is left alone
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Frame = Callable[[int, int], Sequence[Text]]
"""The lines that fill so many columns and lines, or fewer."""


class LiveScreen:
    """The screen for the length of a block. `frame` is called in a thread of its own, after each `update`, too.

    In the background (Ctrl-Z, then `bg`) nothing is painted; in the foreground it comes back by itself. What goes
    wrong while it is painted is raised by the next `update`.
    """

    def __init__(self, console: Console, frame: Frame) -> None:
        self._console = console
        self._frame = frame
        self._descriptor = sys.stdout.fileno()
        self._wake: SimpleQueue[bool] = SimpleQueue()  # may be filled by a signal in the middle of anything
        self._terminal = threading.RLock()  # who holds it may write
        self._live: Live | None = None
        self._modes: list[Any] | None = None  # of the terminal, as they were
        self._painted: tuple[tuple[int, int], Sequence[Text]] | None = None  # what stands there now
        self._handlers: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._painter = threading.Thread(target=self._paint_on, name="iris-screen", daemon=True)

    def __enter__(self) -> LiveScreen:
        for number, handler in (
            (signal.SIGWINCH, self._look_again),
            (signal.SIGCONT, self._look_again),
            (signal.SIGTSTP, self._suspend),
            (signal.SIGQUIT, signal.default_int_handler),  # else it ends us with the terminal as it is
        ):
            # A shell without job control has Ctrl-Z ignored: that stays so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, handler)
        self._painter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ending in _ENDING:  # who is impatient gets the terminal as it was, too
            self._handlers.setdefault(ending, signal.signal(ending, signal.SIG_IGN))
        if self._is_ours():  # Ctrl-S may hold it: what is written now gives it back
            with suppress(termios.error):
                termios.tcflow(self._descriptor, termios.TCOON)
        try:
            self._wake.put(False)
            self._painter.join(_PATIENCE)
            # A terminal that takes nothing keeps its painter: it must not keep us.
            if self._terminal.acquire(timeout=_PATIENCE):
                try:
                    self._leave()
                finally:
                    self._terminal.release()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def update(self) -> None:
        """Something is new. Raises what painting raised."""
        if self._error is not None:
            raise self._error
        self._wake.put(True)

    def _paint_on(self) -> None:
        try:
            while self._wait():
                with self._terminal:
                    if self._is_ours():
                        self._paint()
        except BaseException as error:  # noqa: BLE001,RUF100 - raised by whoever updates next
            self._error = error

    def _wait(self) -> bool:
        """Until there is something to do; False at the end. What has come meanwhile is done in one go."""
        goes_on = True
        with suppress(Empty):
            goes_on = self._wake.get(timeout=TICK)
            while True:
                goes_on = self._wake.get_nowait() and goes_on
        return goes_on

    def _is_ours(self) -> bool:
        """Whether we are in the foreground: nobody else's screen is painted over."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return True  # it is nobody's terminal

    def _paint(self) -> None:
        if self._live is None:
            self._enter()
        assert self._live is not None
        size = self.size()
        lines = self._frame(*size)
        if self._painted == (size, lines):
            return
        self._painted = size, lines
        self._console.size = size
        self._live.update(Group(*lines), refresh=True)

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal, as far as it knows them."""
        with suppress(OSError):
            size = os.get_terminal_size(self._descriptor)
            if size.columns and size.lines:
                return size.columns, size.lines
        return _SMALL

    def _enter(self) -> None:
        """What is typed isn't shown: it would stand anywhere."""
        self._painted = None
        with suppress(termios.error):
            self._modes = termios.tcgetattr(self._descriptor)
            quiet = termios.tcgetattr(self._descriptor)
            quiet[3] &= ~termios.ECHO
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, quiet)
        self._console.size = self.size()
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _leave(self) -> None:
        live, self._live = self._live, None
        modes, self._modes = self._modes, None
        if modes is not None and self._is_ours():  # else whoever has it has set its own
            with suppress(termios.error):  # FLUSH: what was typed meanwhile was for nobody
                termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, modes)
        if live is not None:
            live.stop()

    def _look_again(self, _signal: int, _frame: FrameType | None) -> None:
        self._painted = None
        self._wake.put(True)

    def _suspend(self, _signal: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: give the terminal back, stand still, and begin anew when we are continued."""
        with self._terminal:
            self._leave()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._suspend)
        self._wake.put(True)
