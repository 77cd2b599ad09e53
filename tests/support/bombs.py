"""Commands that kill the shell that runs them at a chosen moment: a crash between two commands."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.local_transport import tools_of

COMMANDS = (
    "awk",
    "date",
    "env",
    "find",
    "grep",
    "link",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "rmdir",
    "setsid",
    "sleep",
    "xargs",
)

SHIM = """#!{dash}
printf x >>{directory}/count
read -r when at <{directory}/bomb
if [ "$(wc -c <{directory}/count)" -eq "$at" ]; then
    if [ "$when" = after ]; then {command} "$@"; fi
    kill -s KILL "$PPID"
    exit 1
fi
exec {command} "$@"
"""


class Bomb:
    """Tools for the front of PATH. They kill their shell at the n-th command after `set`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tools = tools_of("dash", directory / "tools")
        for name in COMMANDS:
            shim = SHIM.format(dash=shutil.which("dash"), directory=directory, command=shutil.which(name))
            (self.tools / name).write_text(shim)
            (self.tools / name).chmod(0o755)
        self.defuse()

    def set(self, when: str, at: int) -> None:
        """`when` is `before` or `after` the command; `at` counts from 1."""
        (self.directory / "count").write_bytes(b"")
        (self.directory / "bomb").write_text(f"{when} {at}\n")

    def defuse(self) -> None:
        self.set("never", -1)

    @property
    def count(self) -> int:
        """Return the number of commands since `set`."""
        return (self.directory / "count").stat().st_size
