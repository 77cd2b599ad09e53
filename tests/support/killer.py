"""A `sh` that is killed at a chosen system call: a crash of a launcher, a wrapper or a stopper."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.local_transport import tools_of
from tests.support.waiting import PATIENCE, until

SHIM = """#!{dash}
case "$# $*" in
    "1 -s") who=launcher ;;
    "4 -s "*) who=stopper ;;
    *" "*/run" setup") who=setup ;;
    *" "*/run" start") who=wrapper ;;
    *) who=somebody ;;
esac
if mv {directory}/$who.armed {directory}/$who.fired 2>/dev/null; then
    read -r how <{directory}/$who.fired
    set -- {shell} "$@"
    if [ -n "$IRIS_ATTEMPT_TOKEN" ]; then
        set -- -E "IRIS_ATTEMPT_TOKEN=$IRIS_ATTEMPT_TOKEN" "$@"
        unset IRIS_ATTEMPT_TOKEN
    fi
    exec strace -DDD -q $how "$@"
fi
exec {shell} "$@"
"""


def tools_with_shim(shell: str, directory: Path, shim: str) -> Path:
    """Return a directory of tools for the front of PATH, in which `sh` is this script."""
    tools = tools_of(shell, directory / "tools")
    path = shutil.which(shell)
    text = shim.format(
        dash=shutil.which("dash"),
        directory=directory,
        shell=f"{path} sh" if shell == "busybox" else path,
    )
    (tools / "sh").unlink()
    (tools / "sh").write_text(text)
    (tools / "sh").chmod(0o755)
    return tools


class Killer:
    """Tools for the front of PATH. The next process of a kind is killed when it makes its n-th call of that name.

    Its pid stays the same and strace has no marker: the attempt is not affected by being traced.
    """

    def __init__(self, shell: str, directory: Path) -> None:
        self.directory = directory
        self.tools = tools_with_shim(shell, directory, SHIM)

    def watch(self, who: str) -> Path:
        """Let the next process of that kind write its system calls to a file; return the path."""
        trace = self.directory / f"{who}.trace"
        self._arm(who, f"-o {trace}")
        return trace

    def arm(self, who: str, call: str, at: int) -> None:
        """`at` counts the calls of that name from 1."""
        self._arm(who, f"-o /dev/null -e trace={call} -e inject={call}:signal=SIGKILL:when={at}")

    def _arm(self, who: str, how: str) -> None:
        new = self.directory / "new"
        new.write_text(f"{how}\n")
        new.rename(self.directory / f"{who}.armed")


def calls_in(trace: Path) -> list[tuple[str, int]]:
    """Return the system calls of a process that has ended, each with its number among those of that name."""
    until(lambda: trace.exists() and "+++" in trace.read_text(errors="replace"))
    counts: dict[str, int] = {}
    calls = []
    for name in re.findall(r"^(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE):
        counts[name] = counts.get(name, 0) + 1
        calls.append((name, counts[name]))
    return calls


def skip_unless_calls_can_be_killed() -> None:
    """Skip the test if strace can't be used: kill one call to find out."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed here")
    kill = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=exit_group"]
    kill += ["-e", "inject=exit_group:signal=SIGKILL:when=1", "sh", "-c", "exit 0"]
    if subprocess.run(kill, capture_output=True, check=False, timeout=PATIENCE).returncode not in (-9, 137):
        pytest.skip("strace can't inject signals here")
