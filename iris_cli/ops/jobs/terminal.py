"""The user's terminal, connected to a terminal on a worker: iris sends keys and shows output."""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_cli.remote.ssh.stream import ByteStream

_MAX_READ = 32 << 10
_RESIZED, _ENDED = b"r", b"o"  # messages to the thread that sends keys


class LocalTerminal:
    """The local terminal. `keys` and `screen`: descriptors of its input and output."""

    def __init__(self, keys: int = 0, screen: int = 1) -> None:
        self.name = os.environ.get("TERM") or "vt100"
        self._keys = keys
        self._screen = screen

    def size(self) -> tuple[int, int]:
        """Return columns and lines of the terminal."""
        found = os.get_terminal_size(self._screen)
        return found.columns or 80, found.lines or 24

    @contextmanager
    def attach(self, stream: ByteStream) -> Iterator[threading.Event]:
        """Connect the terminal to `stream`. Yield an event that is set when the remote terminal has ended.

        Inside the block the local terminal is raw: it echoes nothing, and Ctrl-C and Ctrl-Z reach the remote program.
        The end of the block restores the terminal.
        """
        ended = threading.Event()
        wake_input, wake_output = os.pipe()

        def report_resize(*_: object) -> None:
            os.write(wake_output, _RESIZED)

        threads = [
            threading.Thread(
                target=self._send_keys, args=(stream, wake_input), name="iris-keys", daemon=True
            ),
            threading.Thread(target=self._show_output, args=(stream, ended), name="iris-screen", daemon=True),
        ]
        old_modes = termios.tcgetattr(self._keys)
        old_handler = signal.signal(signal.SIGWINCH, report_resize)
        try:
            tty.setraw(self._keys, termios.TCSANOW)
            for each in threads:
                each.start()
            report_resize()  # the size may have changed before the handler was set
            yield ended
        finally:
            signal.signal(signal.SIGWINCH, old_handler)
            stream.close()
            os.write(wake_output, _ENDED)
            with suppress(termios.error):  # the window is closed
                termios.tcsetattr(self._keys, termios.TCSANOW, old_modes)
            if threads[0].is_alive():
                threads[0].join()
            os.close(wake_output)
            os.close(wake_input)

    def _send_keys(self, stream: ByteStream, wake_input: int) -> None:
        with suppress(OSError):  # the window or the stream is closed
            while True:
                ready, _, _ = select.select([self._keys, wake_input], [], [])
                if wake_input in ready:
                    if _ENDED in os.read(wake_input, _MAX_READ):
                        return
                    stream.resize(*self.size())
                elif keys := os.read(self._keys, _MAX_READ):
                    stream.send(keys)
                else:
                    return

    def _show_output(self, stream: ByteStream, ended: threading.Event) -> None:
        try:
            while data := stream.receive():
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._screen, rest) :]
            stream.exit_status()  # the exit status may arrive after the last output
        except OSError:  # the window is closed
            stream.close()
        finally:
            ended.set()
