"""A terminal for tests: a pty with a program in it, and an emulator of its screen.

The emulator knows few escape sequences; any other one fails the test.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from tests.support.forked import Forked, Process
from tests.support.waiting import PATIENCE

_PIECE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b([=>78])|([\r\n\b\x07])|([^\x00-\x1f\x7f])")

OF_ANOTHER_TERMINAL = frozenset(
    {"NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "SSH_AUTH_SOCK"}
)
IRIS = (sys.executable, "-m", "iris_cli")
_BECOME_ITS_OWN = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a new terminal has no nohup around it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def start(command: Sequence[str], terminal: int, directory: Path, env: Mapping[str, str]) -> Process:
    """Start a program in a terminal; `IRIS` is forked."""
    streams: dict[str, Any] = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    if tuple(command[:3]) == IRIS:
        return Forked(command[3:], cwd=directory, env=env, terminal=True, **streams)
    words = [sys.executable, "-I", "-S", "-c", _BECOME_ITS_OWN, *command]
    made: Process = subprocess.Popen(words, cwd=directory, env=env, start_new_session=True, **streams)
    return made


class Screen:
    """The content of a terminal of this size, of its alternate screen, and the lines that scrolled away."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.main: list[list[str]] = [[]]
        self.second: list[list[str]] | None = None
        self.scrolled = 0  # lines that scrolled off the alternate screen: there must be none
        self.cursor_shown = True
        self.frames = 0  # times that the alternate screen was redrawn from its top
        self.column = self.line = 0

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; text that no longer fits is lost."""
        self.columns, self.lines = columns, lines
        if self.second is not None:
            self.second = [row[:columns] for row in self.second[:lines]]
            self.line = min(self.line, lines - 1)
            self.second += [[] for _ in range(self.line + 1 - len(self.second))]

    def feed(self, text: str) -> str:
        """Process output; return the beginning of an incomplete escape sequence."""
        place = 0
        while place < len(text):
            match = _PIECE.match(text, place)
            if match is None:
                if text[place] == "\x1b" and len(text) - place < 16:
                    return text[place:]
                raise AssertionError(f"a calm program does not write {text[place : place + 12]!r}")
            place = match.end()
            given, command, _, control, character = match.groups()
            if character is not None:
                self._put(character)
            elif control is not None:
                self._control(control)
            elif command is not None:
                self._escape(given, command)
        return ""

    @property
    def shown(self) -> list[str]:
        """Return the lines without trailing blanks."""
        rows = self.second if self.second is not None else self.main
        return ["".join(row).rstrip() for row in rows]

    @property
    def text(self) -> str:
        return "\n".join(self.shown)

    def _rows(self) -> list[list[str]]:
        return self.main if self.second is None else self.second

    def _put(self, character: str) -> None:
        wide = cell_len(character)
        if wide and self.column + wide > self.columns:
            self.column = 0
            self._down()
        row = self._rows()[self.line]
        row += [" "] * (self.column - len(row))
        if wide:
            row[self.column : self.column + wide] = [character, *[""] * (wide - 1)]
        self.column += wide

    def _down(self) -> None:
        rows = self._rows()
        self.line += 1
        if self.second is not None and self.line >= self.lines:
            rows.pop(0)
            self.scrolled += 1
            self.line = self.lines - 1
        while len(rows) <= self.line:
            rows.append([])

    def _control(self, control: str) -> None:
        if control == "\n":
            self._down()
        elif control == "\r":
            self.column = 0
        elif control == "\b":
            self.column = max(0, self.column - 1)

    def _escape(self, given: str, command: str) -> None:
        if command == "m" or given in ("?2004", "?1"):
            return
        if (given, command) in (("?1049", "h"), ("?1049", "l")):
            self.second = [[]] if command == "h" else None
            self.column, self.line = 0, (0 if command == "h" else len(self.main) - 1)
        elif given == "?25":
            self.cursor_shown = command == "h"
        elif command == "H" and given in ("", "0;0", "1;1"):
            self.column = self.line = self.scrolled = 0
            self.frames += 1
        elif command == "K" and given in ("", "0"):
            del self._rows()[self.line][self.column :]
        elif command == "J" and given in ("2", "3", "0", ""):
            del self._rows()[self.line + 1 :]
            del self._rows()[self.line][self.column :]
        else:
            raise AssertionError(f"a calm program does not write ESC[{given}{command}")


class Terminal:
    """A program in a terminal. At the end of the block it is ended with all processes of its terminal."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 100,
        lines: int = 30,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.screen = Screen(columns, lines)
        self.raw = b""
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a character
        self._ours, theirs = os.openpty()
        self.resize(columns, lines)
        inherited = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_TERMINAL}
        env = {**inherited, "TERM": "xterm-256color", **(env or {})}
        self.process = start(command, theirs, cwd or Path.cwd(), env)
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.hang_up()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def hang_up(self) -> None:
        """Close the terminal: the kernel sends SIGHUP to its processes."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def resize(self, columns: int, lines: int) -> None:
        """Resize the window: the kernel sends SIGWINCH to the foreground processes."""
        self.screen.resize(columns, lines)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def echoes(self) -> bool:
        """Return True if input is echoed."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def hold(self) -> None:
        """Stop the output, as Ctrl-S does."""
        theirs = os.open(f"/proc/{self.process.pid}/fd/0", os.O_RDWR | os.O_NOCTTY)
        termios.tcflow(theirs, termios.TCOOFF)
        os.close(theirs)

    def type(self, keys: str) -> None:
        """Type: `\\x03` is Ctrl-C, `\\x1a` Ctrl-Z."""
        os.write(self._ours, keys.encode())

    def until(self, seen: Callable[[Screen], object], what: str = "what was expected") -> None:
        """Read until the screen is as expected."""
        deadline = time.monotonic() + PATIENCE
        while not seen(self.screen):
            left = deadline - time.monotonic()
            goes_on = left > 0 and self._read(min(left, 1.0))
            assert goes_on, f"{what} did not appear:\n{self.screen.text}"

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(1.0):
            assert time.monotonic() < deadline, f"it does not end:\n{self.screen.text}"
        return self.process.wait(PATIENCE)

    def _read(self, patience: float) -> bool:
        """Read output; return False at the end."""
        if not select.select([self._ours], [], [], patience)[0]:
            return True
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # no process has the other end open
            return False
        self.raw += data
        self._rest = self.screen.feed(self._rest + self._decoder.decode(data))
        return bool(data)
