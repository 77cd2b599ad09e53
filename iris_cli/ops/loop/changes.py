"""Changes under a running process: `cluster.yaml`, which the loop rereads, and the installed program."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import iris_cli
from iris_cli.config.schema import ClusterConfig
from iris_cli.core.units import count
from iris_cli.errors import ConfigError


class Configuration:
    """The file at `path`, reread with `load`. `invalid`: its problem at the last check, '' if it is valid."""

    def __init__(self, path: Path, load: Callable[[], ClusterConfig], first: ClusterConfig) -> None:
        self.invalid = ""
        self.first = first
        self._path = path
        self._load = load
        self._seen: tuple[int, ...] | None = None  # None: the first check reads it, since it may have changed

    def look(self) -> ClusterConfig | None:
        """Return the configuration if it is valid and has changed since the last check."""
        found = _signature(self._path)
        if found == self._seen:
            return None
        self._seen = found  # before reading: a concurrent change is read again
        try:
            config = self._load()
        except ConfigError as error:
            self.invalid = count(len(error.problems), "problem") if error.problems else error.message
            return None
        self.invalid = "" if config.name == self.first.name else "cluster.name changed"
        return None if self.invalid else config

    def troubles(self) -> Iterator[str]:
        """Yield the configuration's problem with its fix."""
        if self.invalid:
            yield f"{self._path.name} is invalid ({self.invalid}), nothing is placed: iris config validate"


def change_warning(path: Path, warn: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that warns once if the file changed, for a command that does not read it again."""
    before, warned = _content(path), False

    def look() -> None:
        nonlocal warned
        now = None if warned or before is None else _content(path)
        if now not in (None, before):  # None: an editor is replacing the file
            warned = True
            warn(f"{path.name} has changed: restart this command to use it")

    return look


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


_VERSION = re.compile(r'^__version__ = "([^"\n]{1,80})"', re.MULTILINE)
_SOURCE = Path(iris_cli.__file__)
_PATIENCE = 120.0  # seconds for the new version to import everything: the machine may be busy


def check(program: Sequence[str]) -> str:
    """Return the version of a program that can import everything a loop needs; '' if it can't."""
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

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program
        self._seen = self._first_look = _signature(_SOURCE)

    def newer(self) -> str:
        """Return the installed version if it differs and can run; '' otherwise.

        Two checks must find the same files: during an installation they are a mix of both versions.
        """
        found = _signature(_SOURCE)
        if not found or found == self._seen:
            return ""
        if found != self._first_look:
            self._first_look = found
            return ""
        self._seen = found  # before the check: a broken version is checked once
        version = _written_version()
        return (
            version if version not in ("", iris_cli.__version__) and check(self._program) == version else ""
        )


def _written_version() -> str:
    with suppress(OSError, ValueError):
        match = _VERSION.search(_SOURCE.read_text("utf-8"))
        return match[1] if match else ""
    return ""


def _signature(path: Path) -> tuple[int, ...]:
    """Return a value that changes with the file; empty while it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
