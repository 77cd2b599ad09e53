"""Detect changes of `cluster.yaml` and of the installed program."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import iris_cli
from iris_cli.config.schema import ClusterConfig
from iris_cli.core import clip, count
from iris_cli.errors import ConfigError
from iris_cli.files import signature_of

_VERSION = re.compile(r'^__version__ = "([^"\n]{1,80})"', re.MULTILINE)
_SOURCE = Path(iris_cli.__file__)
_TIMEOUT = 120.0  # seconds for the new version to import everything, even on a busy machine


class Configuration:
    """The configuration file at `path`. `load` reads it. The loop started with the configuration `initial`.

    `invalid`: the problem that the last check found, with its fix; '' if the file was valid.
    """

    def __init__(self, path: Path, load: Callable[[], ClusterConfig], initial: ClusterConfig) -> None:
        self.invalid = ""
        self.initial = initial
        self._path = path
        self._load = load
        self._signature: tuple[int, ...] | None = None  # at the last check; None before the first check

    def changed_config(self) -> ClusterConfig | None:
        """Return the configuration at the first check and after a change; None if it is unchanged or invalid."""
        signature = signature_of(self._path)
        if signature == self._signature:
            return None
        self._signature = signature  # set BEFORE reading, so that a change during the read is noticed
        try:
            config = self._load()
        except ConfigError as error:
            found = count(len(error.problems), "problem") if error.problems else error.message
            self.invalid = f"{self._path.name} is invalid ({found}), nothing is placed: iris config validate"
            return None
        if config.name != self.initial.name:
            name, expected = clip(config.name), clip(self.initial.name)
            self.invalid = (
                f"{self._path.name} names cluster {name!r} instead of {expected!r}: nothing is placed"
            )
            return None
        self.invalid = ""
        return config


def change_warning(path: Path, warn: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that calls `warn` once if the file has changed, for commands that do not reload the file."""
    old_content = _content(path)

    def check() -> None:
        nonlocal old_content
        content = None if old_content is None else _content(path)
        if content not in (None, old_content):  # None: an editor is replacing the file
            old_content = None
            warn(f"{path.name} has changed: restart this command to use it")

    return check


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


def output_of(command: Sequence[str], environ: Mapping[str, str], timeout: float) -> str | None:
    """Run a command, and return its output; None if it failed or did not end in time."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - iris itself, or a fixed tool name with our arguments
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        ).stdout
    return None


class InstalledProgram:
    """The installed program, which may be newer than the running one. `program`: the command line of a loop."""

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program
        self._checked_signature = self._last_signature = signature_of(_SOURCE)

    def new_version(self) -> str:
        """Return the installed version if it differs from the running version and can run a loop; '' otherwise.

        A change counts only after two calls have found the same file, because an installation takes a while.
        """
        signature = signature_of(_SOURCE)
        if not signature or signature == self._checked_signature:
            return ""
        if signature != self._last_signature:
            self._last_signature = signature
            return ""
        # Set it BEFORE the check, so that a broken version is checked only once.
        self._checked_signature = signature
        with suppress(OSError, ValueError):
            match = _VERSION.search(_SOURCE.read_text("utf-8"))
            if match and match[1] != iris_cli.__version__:
                # The check fails if the program can't import everything that a loop needs.
                checked = output_of([*self._program, "--check"], os.environ, _TIMEOUT)
                return match[1] if checked is not None and checked.strip() == match[1] else ""
        return ""
