"""A transport without a network: runs scripts in shells of this machine, as different hosts do."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.transport import NoAnswer, Payload, Script, ScriptResult, Target
from tests.support.waiting import PATIENCE

SHELLS = ("dash", "busybox", "bash")
"""`busybox`: its ash, with busybox's commands instead of the GNU ones."""

_REQUIRED = (
    "awk base64 cat chmod cp date dd df du env find grep head id ln ls mkdir mv od readlink rm rmdir sed sleep sort"
    " stat tail touch tr wc xargs"
)
REQUIRED = tuple(_REQUIRED.split())
"""The commands that a worker needs."""


class LocalTransport:
    """Feeds each script to `sh -s` with its own home. Both timeouts are one."""

    def __init__(self, home: Path, tools: Path, env: dict[str, str] | None = None) -> None:
        self.home = home
        self.env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(home), **(env or {})}
        self.scripts: list[bytes] = []
        self.payload_bytes = 0
        self.cut_after: int | None = None
        home.mkdir(parents=True, exist_ok=True)

    def run(self, target: Target, script: Script) -> ScriptResult:
        self.scripts.append(script.text)
        if script.payload is not None:
            return self._run_with(script.payload, script.text)
        command = ["sh", "-s"]
        try:
            done = subprocess.run(
                command,
                input=script.text,
                capture_output=True,
                env=self.env,
                cwd=self.home,
                timeout=PATIENCE + script.timeout,
                check=False,
                start_new_session=True,
                umask=0o022,
                executable=shutil.which("sh", path=self.env["PATH"]),
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswer(SilenceKind.TIMEOUT, "script", "no end") from error
        if max(len(done.stdout), len(done.stderr)) > script.limit:
            raise NoAnswer(SilenceKind.PROTOCOL, "script", "too much output")
        return ScriptResult(stdout=done.stdout, stderr=done.stderr, status=done.returncode)

    def _run_with(self, payload: Payload, script: bytes) -> ScriptResult:
        """Send the payload when the script requests it; cut the connection after `cut_after` bytes of it."""
        process = subprocess.Popen(
            ["sh", "-s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.env,
            cwd=self.home,
            start_new_session=True,
            umask=0o022,
            executable=shutil.which("sh", path=self.env["PATH"]),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            said = b""
            try:
                process.stdin.write(script)
                process.stdin.flush()
                while line := process.stdout.readline():
                    said += line
                    if line == payload.mark + b"\n":
                        data = b"".join(payload.chunks())
                        self.payload_bytes += len(data)
                        process.stdin.write(data if self.cut_after is None else data[: self.cut_after])
                        break
                process.stdin.close()
            except BrokenPipeError:
                process.stdin = None
            said += process.stdout.read()
        if self.cut_after is not None:
            raise NoAnswer(SilenceKind.PROTOCOL, "payload", "the connection was closed")
        return ScriptResult(stdout=said, stderr=b"", status=process.returncode)

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def tools_of(shell: str, directory: Path, without: Sequence[str] = ()) -> Path:
    """Return a directory for the front of PATH in which `sh` is that shell. Skips the test if it is not installed."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed here")
    directory.mkdir(parents=True, exist_ok=True)
    names = ["sh"]
    if shell == "busybox":
        names += _commands_of_busybox(path)
    for name in names:
        link = directory / name
        if name not in without and not link.exists():
            link.symlink_to(path)
    return directory


@cache
def _commands_of_busybox(path: str) -> list[str]:
    listed = subprocess.run([path, "--list"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name not in ("sh", "busybox", "[", "[[")]


def only_tools(shell: str, directory: Path, names: Sequence[str]) -> Path:
    """Return a directory that can be the PATH of a host with only these commands."""
    tools_of(shell, directory)
    for name in names:
        path = shutil.which(name)
        if path is not None and not (directory / name).exists():
            (directory / name).symlink_to(path)
    return directory
