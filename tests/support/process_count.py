"""A traced `sh`, to count the processes that calls start on a worker, including detached ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.killer import tools_with_shim
from tests.support.waiting import PATIENCE

SHIM = """#!{dash}
[ "$*" = -s ] || exec {shell} "$@"
exec strace -f -q -e trace=execve -e signal=none -o {directory}/$$.trace {shell} "$@"
"""


class ProcessCount:
    """Tools for the front of PATH. A call returns when all its processes have ended."""

    def __init__(self, shell: str, directory: Path) -> None:
        self.directory = directory
        self.tools = tools_with_shim(shell, directory, SHIM)

    def clear(self) -> None:
        """Reset the count."""
        for trace in self.directory.glob("*.trace"):
            trace.unlink()

    @property
    def forks(self) -> int:
        """Return the number of processes that calls have started, without the shells of the calls."""
        return sum(len(re.findall(r"^\d+ +\+\+\+ ", text, re.MULTILINE)) - 1 for text in self._texts())

    def programs(self, name: str) -> int:
        """Return how many of them executed that program. Another process may split a line of the trace."""
        called: dict[str, str] = {}
        found = []
        for line in "".join(self._texts()).splitlines():
            pid, _, rest = line.partition(" ")
            if match := re.match(r' *execve\("[^"]*?([^"/]*)"', rest):
                called[pid] = match[1]
            if "execve" in rest and rest.endswith(" = 0"):
                found.append(called[pid])
        return found.count(name)

    def _texts(self) -> list[str]:
        return [trace.read_text(errors="replace") for trace in self.directory.glob("*.trace")]


def skip_unless_processes_can_be_counted() -> None:
    """Skip the test if strace can't be used."""
    if not can_count():
        pytest.skip("strace can't trace here")


def can_count() -> bool:
    """Return True if strace works."""
    if shutil.which("strace") is None:
        return False
    words = ["strace", "-f", "-q", "-e", "trace=execve", "-o", "/dev/null", "true"]
    return subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE).returncode == 0
