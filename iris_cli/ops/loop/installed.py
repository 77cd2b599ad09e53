"""Whether another version of this program was installed while it ran."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import iris_cli

_VERSION = re.compile(r'^__version__ = "([^"\n]{1,80})"', re.MULTILINE)
_PATIENCE = 120.0  # seconds for the new one to import all of itself: the machine may be busy

Check = Callable[[Sequence[str]], str]
"""Has a program import all that it needs; returns its version, or '' if it can't."""


def check(program: Sequence[str]) -> str:
    """The version of a program that can import all that a loop needs; '' if it can't."""
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [*program, "--check"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Installed:
    """The files of the program that this process runs. `program` are the words that run a loop."""

    def __init__(
        self,
        program: Sequence[str],
        *,
        version: str = iris_cli.__version__,
        source: Path = Path(iris_cli.__file__),
        can_run: Check = check,
    ) -> None:
        self._program = program
        self._version = version
        self._source = source
        self._can_run = can_run
        self._seen = self._signature()

    def newer(self) -> str:
        """The version that is installed now, if it is another one and can run; else ''.

        Two looks have to find the same files: while somebody installs them, they are of both versions.
        """
        found = self._signature()
        if found is None or found == self._seen:
            return ""
        if found != self._first_look:
            self._first_look = found
            return ""
        self._seen = found  # BEFORE it is asked: what can't run is not asked again until it changes
        version = self._read()
        return (
            version if version not in ("", self._version) and self._can_run(self._program) == version else ""
        )

    _first_look: tuple[int, ...] | None = None

    def _signature(self) -> tuple[int, ...] | None:
        """Changes when the file does; None while it is not there."""
        try:
            found = os.stat(self._source)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> str:
        with suppress(OSError, ValueError):
            match = _VERSION.search(self._source.read_text("utf-8"))
            return match[1] if match else ""
        return ""
