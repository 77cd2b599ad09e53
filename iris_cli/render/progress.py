"""The progress line on stderr, if stderr is a terminal. Operations longer than a second show it until they end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.units import count, format_duration, format_memory
from iris_cli.render.layout import clean_line

if TYPE_CHECKING:
    from iris_cli.ops.session import GetProgress, ProgressState

SHOW_AFTER = 1.0  # seconds until the line is shown; shorter operations show no line
UPDATE_INTERVAL = 0.25  # seconds between two updates
_MAX_PAUSE = 0.5  # seconds between two operations that count as the same work
_BAR_WIDTH = 24  # columns
_MIN_WIDTH_FOR_BAR = 72  # columns


class ProgressLine:
    """The line that shows the innermost long operation. Thread-safe. Call `wipe` before writing to the terminal."""

    def __init__(self, clock: Callable[[], float] = SYSTEM_CLOCK.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._operations: list[tuple[float, GetProgress]] = []  # running operations and their start times
        self._began_at = self._ended_at = -SHOW_AFTER
        self._shown = ""
        self._thread: threading.Thread | None = None

    @contextmanager
    def __call__(self, get_progress: GetProgress) -> Iterator[None]:
        """Show the progress of an operation until the block ends, if the operation takes long."""
        with self._lock:
            if not self._operations and self._clock() - self._ended_at > _MAX_PAUSE:
                self._began_at = self._clock()
            operation = self._clock(), get_progress
            self._operations.append(operation)
            if self._thread is None:
                self._thread = threading.Thread(target=self._show, name="iris-progress", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                if operation in self._operations:
                    self._operations.remove(operation)
                self._ended_at = self._clock()
                if not self._operations:
                    self.wipe()

    def wipe(self) -> None:
        """Remove the line, to make room for other output. The next update shows the line again."""
        with self._lock:
            if self._shown:
                self._shown = ""
                _write("\r\x1b[K")

    def end(self) -> None:
        """Drop all operations, including interrupted ones, and remove the line."""
        with self._lock:
            self._operations.clear()
            self.wipe()

    def update(self) -> None:
        """Update the line if the work has lasted SHOW_AFTER seconds."""
        with self._lock:
            now = self._clock()
            seconds = now - self._began_at
            if not self._operations or seconds < SHOW_AFTER:
                return
            # Prefer slow operations, the innermost first. A quick operation usually is a part of a slow operation.
            slow = [
                get_progress
                for began, get_progress in reversed(self._operations)
                if now - began >= SHOW_AFTER
            ]
            quick = [get_progress for began, get_progress in self._operations if now - began < SHOW_AFTER]
            progress = next(filter(None, map(_current_state, (*slow, *quick))), None)
            line = line_text(progress, seconds, _width()) if progress is not None else ""
            if line and line != self._shown:
                self._shown = line
                _write(f"\r{line}\x1b[K")

    def _show(self) -> None:
        """Update the line until no operation has run for SHOW_AFTER seconds."""
        idle = 0.0
        while idle < SHOW_AFTER:
            SYSTEM_CLOCK.sleep(UPDATE_INTERVAL)
            with self._lock:
                idle = 0.0 if self._operations else idle + UPDATE_INTERVAL
                self.update()
                if idle >= SHOW_AFTER:
                    self._thread = None


def line_text(progress: ProgressState, seconds: float, width: int) -> str:
    """Return `probing  ━━━━━━━━────────────  12 of 64 workers  3s`, in less than `width` columns."""
    action, done, total, noun = progress
    parts = [action]
    if total == 1 and noun != "bytes":
        noun = ""  # "0 of 1" is no information
    elif total > 0 and width >= _MIN_WIDTH_FOR_BAR:
        full = min(_BAR_WIDTH, _BAR_WIDTH * done // total)
        parts.append("━" * full + "─" * (_BAR_WIDTH - full))
    if noun == "bytes":
        parts.append(f"{format_memory(done)} of {format_memory(total)}" if total else format_memory(done))
    elif noun:
        parts.append(f"{done} of {count(total, noun)}" if total else count(done, noun))
    parts.append(format_duration(int(seconds)))
    line = clean_line("  ".join(parts))
    return line if len(line) < width else line[: max(0, width - 2)] + "…"


def _current_state(get_progress: GetProgress) -> ProgressState | None:
    """Return the progress. Return None if it has no text, or if its data changed during the call."""
    try:
        progress = get_progress()
    except Exception:
        return None
    return progress if progress[0] else None


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


LINE = ProgressLine()  # the progress line of this process
