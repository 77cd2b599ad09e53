"""Commands that wait at a gate, so that a test chooses the interleaving."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.local_transport import tools_of
from tests.support.waiting import until

SHIM = """#!{dash}
case "$*" in {arguments})
    trap '' TERM
    if [ {when} = after ]; then {command} "$@"; status=$?; fi
    echo >{directory}/arrived
    while [ ! -e {directory}/open ]; do {sleep} 0.2; done
    if [ {when} = after ]; then exit $status; fi
esac
exec {command} "$@"
"""


class Gate:
    """Tools in which `command` waits until `open`, before or after it runs with `arguments` (a pattern of sh)."""

    def __init__(self, directory: Path, when: str, command: str, arguments: str) -> None:
        self.directory = directory
        self.tools = tools_of("dash", directory / "tools")
        (self.tools / command).write_text(
            SHIM.format(
                dash=shutil.which("dash"),
                sleep=shutil.which("sleep"),
                command=shutil.which(command),
                directory=directory,
                when=when,
                arguments=arguments,
            )
        )
        (self.tools / command).chmod(0o755)

    def wait(self) -> None:
        """Wait until a process is at the gate."""
        until((self.directory / "arrived").exists)

    def open(self) -> None:
        (self.directory / "open").touch()
