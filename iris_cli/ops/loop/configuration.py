"""Changes of `cluster.yaml` under a running process: the loop reads it again, other commands warn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from iris_cli.config.schema import ClusterConfig
from iris_cli.core.units import count
from iris_cli.errors import ConfigError


class Configuration:
    """The file at `path`, of which `first` is known. `load` reads it again, and raises ConfigError.

    `invalid` says what is wrong with it at the last look, '' if nothing is.
    """

    def __init__(self, path: Path, load: Callable[[], ClusterConfig], first: ClusterConfig) -> None:
        self.invalid = ""
        self.first = first
        self._path = path
        self._load = load
        self._seen: tuple[int, ...] | None = None  # the first look reads it: it may have changed

    def look(self) -> ClusterConfig | None:
        """The configuration if it has changed since the last look and is valid."""
        found = self._signature()
        if found == self._seen:
            return None
        self._seen = found  # BEFORE it is read: should it change meanwhile, it is read once more
        try:
            config = self._load()
        except ConfigError as error:
            self.invalid = count(len(error.problems), "problem") if error.problems else error.message
            return None
        self.invalid = "" if config.name == self.first.name else "another cluster.name"
        return None if self.invalid else config

    def troubles(self) -> Iterator[str]:
        """What the operator is to know of it, with what to type."""
        if self.invalid:
            yield f"{self._path.name} is not valid ({self.invalid}), so it places nothing: iris config validate"

    def _signature(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def change_warning(path: Path, warn: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that warns once if the file changed, for a command that does not read it again."""
    before, warned = _content(path), False

    def look() -> None:
        nonlocal warned
        now = None if warned or before is None else _content(path)
        if now not in (None, before):  # None: an editor is replacing the file
            warned = True
            warn(f"{path.name} has changed since this began: end it and start it again to take that in")

    return look


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None
