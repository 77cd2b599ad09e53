"""The alternate screen of a terminal.

A thread paints the screen repeatedly, so ages advance while the command waits for a lock or for workers, and a resize
takes effect at once. The terminal is restored even if Ctrl-C or SIGTERM ends the command.
"""

import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from iris_cli.render.console import is_in_foreground

TICK = 1.0  # seconds between two paints if only the time changes

_DEFAULT_SIZE = (80, 24)  # columns and lines if the terminal reports no size
_TIMEOUT = 2.0  # seconds to wait for a terminal that accepts no output
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Frame = Callable[[int, int], Sequence[Text]]
"""Function that returns the lines to show for a number of columns and a number of lines."""


class LiveScreen:
    """Context manager for the alternate screen. A thread calls `frame` every TICK seconds and after each `update`.

    The thread paints nothing while the command is in the background (Ctrl-Z, then `bg`). If an error occurs in the
    thread, the next `update` raises it.
    """

    def __init__(self, console: Console, frame: Frame) -> None:
        self._console = console
        self._frame = frame
        self._descriptor = sys.stdout.fileno()
        self._wake: SimpleQueue[bool] = SimpleQueue()  # reentrant, because signal handlers put into it
        self._terminal = threading.RLock()  # held while writing to the terminal
        self._live: Live | None = None
        self._modes: list[Any] | None = None  # the terminal's modes before the screen opened
        self._painted: tuple[tuple[int, int], Sequence[Text]] | None = None  # size and lines on the screen
        self._handlers: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._painter = threading.Thread(target=self._run_painter, name="iris-screen", daemon=True)

    def __enter__(self) -> "LiveScreen":
        for number, handler in (
            (signal.SIGWINCH, self._repaint),
            (signal.SIGCONT, self._repaint),
            (signal.SIGTSTP, self._suspend),
            (signal.SIGQUIT, signal.default_int_handler),  # the default would leave the terminal unrestored
        ):
            # A shell without job control lets its programs ignore SIGTSTP. Keep ignoring it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, handler)
        self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end_signal in _END_SIGNALS:  # a second Ctrl-C must not interrupt the restore
            self._handlers.setdefault(end_signal, signal.signal(end_signal, signal.SIG_IGN))
        if is_in_foreground():  # Ctrl-S may have stopped the output: resume it
            with suppress(termios.error):
                termios.tcflow(self._descriptor, termios.TCOON)
        try:
            self._wake.put(False)
            self._painter.join(_TIMEOUT)
            # The thread may hang on a terminal that accepts no output: do not wait for the lock forever.
            if self._terminal.acquire(timeout=_TIMEOUT):
                try:
                    self._leave()
                finally:
                    self._terminal.release()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def update(self) -> None:
        """Request a paint. Raises the error of an earlier paint."""
        if self._error is not None:
            raise self._error
        self._wake.put(True)

    def _run_painter(self) -> None:
        try:
            while self._wait():
                with self._terminal:
                    if is_in_foreground():
                        self._paint()
        except BaseException as error:  # noqa: BLE001,RUF100 - raised by the next update
            self._error = error

    def _wait(self) -> bool:
        """Wait for updates, at most TICK seconds. Return False when the screen closes."""
        is_active = True
        with suppress(Empty):
            is_active = self._wake.get(timeout=TICK)
            while True:
                is_active = self._wake.get_nowait() and is_active
        return is_active

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
        """Return columns and lines of the terminal, or the default if the terminal reports no size."""
        with suppress(OSError):
            size = os.get_terminal_size(self._descriptor)
            if size.columns and size.lines:
                return size.columns, size.lines
        return _DEFAULT_SIZE

    def _enter(self) -> None:
        """Enter the alternate screen. Switch echo off, because typed characters would appear at random places."""
        self._painted = None
        with suppress(termios.error):
            self._modes = termios.tcgetattr(self._descriptor)
            no_echo = termios.tcgetattr(self._descriptor)
            no_echo[3] &= ~termios.ECHO
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, no_echo)
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
        if modes is not None and is_in_foreground():  # a process in the background must not change the modes
            with suppress(termios.error):  # TCSAFLUSH discards the keys typed on this screen
                termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, modes)
        if live is not None:
            live.stop()

    def _repaint(self, _signal: int, _frame: FrameType | None) -> None:
        self._painted = None
        self._wake.put(True)

    def _suspend(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle Ctrl-Z: restore the terminal, stop, and paint again after SIGCONT."""
        with self._terminal:
            self._leave()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._suspend)
        self._wake.put(True)
