"""Commands that kill the shell that runs them, at one chosen moment: every crash between two commands, one by one."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.local_transport import tools_of

COMMANDS = ("mkdir", "ln", "link", "mv", "rm", "rmdir", "env", "setsid", "sleep", "grep", "xargs", "awk", "umask", "date", "ls")

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
    """Tools for the front of PATH. The bomb goes off at the n-th command that is run since it was set."""

    def __init__(self, directory: Path, shell: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.tools = tools_of("dash" if shell == "busybox" else shell, directory / "tools")
        if shell == "busybox":  # its ash would run its own commands instead of ours
            (self.tools / "sh").unlink()
            (self.tools / "sh").write_text('#!/bin/dash\nexec busybox ash "$@"\n')
            (self.tools / "sh").chmod(0o755)
        for name in COMMANDS:
            path = shutil.which(name)
            if path is not None and (self.tools / name).is_symlink() is False:
                shim = SHIM.format(dash=shutil.which("dash"), directory=directory, command=path)
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
        """How many commands were run since the bomb was set."""
        return (self.directory / "count").stat().st_size
