"""Command, interval and program of scheduled cycles. Paths are absolute, because cron uses another directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core import Connection, Provider, ScaleGroup, clip
from iris_cli.errors import IrisError, UsageError
from iris_cli.ops.checks.findings import Finding, Level, warning

LOG = "cron.log"
_LINES = 5  # lines of output shown
_MAX_BYTES = 4096  # bytes of output read
_TIMEOUT = 60.0  # seconds for crontab and systemctl
_AGENT = "SSH_AUTH_SOCK"
_GOOGLE_PREFIXES = ("GOOGLE_", "CLOUDSDK_")


class CronEntry(Struct, frozen=True, kw_only=True):
    """Scheduled cycles of one cluster, every `every` seconds. `program`: the command line of iris without options."""

    cluster: str
    config: Path
    state: Path
    program: tuple[str, ...]
    every: float = 60.0
    autoscale: bool = False

    @property
    def command(self) -> list[str]:
        """Command line of one cycle. It exits at once if another cycle holds the lock."""
        names = ["--config", str(self.config), "--state-dir", str(self.state)]
        options = ["--once", "--lock-timeout", "0", "--cron", f"{self.every:g}"]
        return [*self.program, *names, "schedule", *options, *(["--autoscale"] if self.autoscale else [])]

    @property
    def log(self) -> Path:
        return self.state / LOG

    @property
    def name(self) -> str:
        """Name of the systemd units, different for each configuration file."""
        return f"iris-{self.cluster}-{hashlib.sha256(os.fsencode(self.config)).hexdigest()[:8]}"


def absolute_path(path: Path) -> Path:
    """Return the absolute path. Raises UsageError for a name that a crontab can't contain."""
    if any(ord(character) < 32 for character in str(path)):
        raise UsageError(f"{clip(str(path))!r} has control characters in its name")
    return path.absolute()


def run_tool(
    words: Sequence[str], text: str | None = None, *, hint: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a system tool and wait for it. Raises IrisError if it is missing or fails to run."""
    tool = shutil.which(words[0])
    if tool is None:
        raise IrisError(f"{words[0]} is not installed", hint=hint)
    try:
        return subprocess.run(  # noqa: S603 - fixed tool names, our arguments
            [tool, *words[1:]],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env={**os.environ, "LC_ALL": "C"},
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise IrisError(f"{words[0]} failed: {error}", hint=hint) from error


def last_lines(log: Path) -> list[str]:
    """Return the last lines of the cycles' output."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MAX_BYTES))
            return file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()[-_LINES:]
    except OSError:
        return []


def tool_error(words: Sequence[str], result: subprocess.CompletedProcess[str]) -> IrisError:
    """Return the error for a failed tool, with the tool's message."""
    message = clip((result.stderr or result.stdout).strip().replace("\n", "; "))
    return IrisError(f"{' '.join(words)} failed: {message or f'exit {result.returncode}'}")


def keys_without_agent(connections: Sequence[Connection]) -> list[Finding]:
    """Return the problems that SSH keys have under cron, which has no SSH agent and no terminal for passphrases."""
    from iris_cli.ops.checks.host_checks import check_keys

    agent = os.environ.pop(_AGENT, None)
    try:
        return [each for each in check_keys(connections) if each.level is not Level.OK]
    finally:
        if agent is not None:
            os.environ[_AGENT] = agent


def missing_variables(groups: Sequence[ScaleGroup], timer: str = "") -> list[Finding]:
    """Return a finding for each Google variable of this shell, because cron lacks these variables.

    `timer`: the name of the systemd units, or '' for the crontab.
    """
    if all(group.template.provider is not Provider.GCP for group in groups):
        return []
    fix = "crontab -e, above the lines of iris: "
    if timer:
        fix = f"systemctl --user edit {timer}.service, below [Service]: Environment="
    names = sorted(name for name in os.environ if name.startswith(_GOOGLE_PREFIXES))
    return [warning("cron", f"cron has no {name}", f"{fix}{name}=...") for name in names]
