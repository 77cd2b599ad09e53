"""A transport without a network: runs scripts in shells of this machine, as hosts of different making would."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from iris_cli.core.observations import SilenceKind
from iris_cli.remote.transport import NoAnswer, Output, Target

SHELLS = ("dash", "busybox", "bash")
"""`busybox` is its ash with busybox's own commands in place of the GNU ones."""


class LocalTransport:
    """Feeds each script to `sh -s` with a home of its own, and keeps both deadlines in one."""

    def __init__(self, home: Path, tools: Path, env: dict[str, str] | None = None) -> None:
        self.home = home
        self.env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(home), **(env or {})}
        self.scripts: list[bytes] = []
        home.mkdir(parents=True, exist_ok=True)

    def run(
        self,
        target: Target,
        script: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        limit: int = 1 << 20,
        first_contact: bool = False,
    ) -> Output:
        self.scripts.append(script)
        command = ["sh", "-s"]
        try:
            done = subprocess.run(
                command,
                input=script,
                capture_output=True,
                env=self.env,
                cwd=self.home,
                timeout=60 + timeout,  # a busy machine must not fail a test
                check=False,
                start_new_session=True,
                umask=0o022,
                executable=shutil.which("sh", path=self.env["PATH"]),
            )
        except subprocess.TimeoutExpired as error:
            raise NoAnswer(SilenceKind.TIMEOUT, "script", "no end") from error
        if max(len(done.stdout), len(done.stderr)) > limit:
            raise NoAnswer(SilenceKind.PROTOCOL, "script", "too much output")
        return Output(stdout=done.stdout, stderr=done.stderr, status=done.returncode)

    def close(self) -> None:
        """Nothing is kept open."""


def tools_of(shell: str, directory: Path, without: Sequence[str] = ()) -> Path:
    """A directory for the front of PATH in which `sh` is that shell; skips the test if it is missing here."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed here")
    directory.mkdir(parents=True, exist_ok=True)
    names = ["sh"]
    if shell == "busybox":
        listed = subprocess.run([path, "--list"], capture_output=True, text=True, check=True)
        names += [name for name in listed.stdout.split() if name not in ("sh", "busybox", "[", "[[")]
    for name in names:
        link = directory / name
        if name not in without and not link.exists():
            link.symlink_to(path)
    return directory


def only_tools(shell: str, directory: Path, names: Sequence[str]) -> Path:
    """A directory that can be the whole PATH of a host that has these commands and no others."""
    tools_of(shell, directory)
    for name in names:
        path = shutil.which(name)
        if path is not None and not (directory / name).exists():
            (directory / name).symlink_to(path)
    return directory
