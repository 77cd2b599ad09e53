"""The clients of jobs that run on a terminal: a file with a lock for each, held for as long as the client lives.

The kernel releases the lock of a client that was killed. Then any cycle may end its job.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from iris_cli.journal.durable import PRIVATE_DIRECTORY, open_safely
from iris_cli.journal.files.runners import HeldRunner, Runners
from iris_cli.journal.layout import CLIENTS
from iris_cli.randomness import SYSTEM_RANDOMNESS


class Clients:
    """The clients of one state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / CLIENTS

    def hold(self) -> HeldRunner:
        """Become a client, with a name that nobody had before. BEFORE its job is in the log. Raises OSError."""
        self._directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        self._clean()
        while True:
            path = self._directory / SYSTEM_RANDOMNESS.hexadecimal(8)
            held = HeldRunner(path, open_safely(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
            try:
                fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody looks at it just now
                held.hand_over()
            else:
                if held.in_place():
                    return held
                held.hand_over()  # it was taken for a dead one's before it was locked

    def is_gone(self, name: str) -> bool:
        """Whether nobody holds that lock. What can't be read may be held: then nothing is known."""
        try:
            with Runners.looking(self._directory / name) as free:
                return free
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _clean(self) -> None:
        """Remove what clients left that were killed."""
        for path in self._directory.iterdir():
            if self.is_gone(path.name):
                with suppress(OSError):
                    path.unlink()
