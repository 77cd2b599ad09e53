"""What becomes of a background process when its user logs out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PATIENCE = 5.0  # seconds
_LINGERING = Path("/var/lib/systemd/linger")  # a file for each user who lingers
_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--")


def scope_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The words before a command that keep it out of the login session, where there is a way; else none.

    With lingering the user's own service manager outlives each login, and so does what runs in a scope of it.
    """
    manager = Path(environ.get("XDG_RUNTIME_DIR", ""), "systemd", "private")
    if not (manager.is_socket() and _lingers(environ) and shutil.which(_SCOPE[0])):
        return ()
    return _SCOPE if _works((*_SCOPE, "true"), environ) else ()


def logins_kill(environ: Mapping[str, str]) -> bool:
    """Whether the login manager ends what a session leaves behind, as far as it says so."""
    if scope_of(environ) or not shutil.which("loginctl"):
        return False
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            ["loginctl", "show-user", "--property=KillUserProcesses"],  # noqa: S607 - as cron finds its tools
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        ).stdout
        return said.strip() == "KillUserProcesses=yes"
    return False


def _lingers(environ: Mapping[str, str]) -> bool:
    name = environ.get("LOGNAME") or environ.get("USER") or ""
    return bool(name) and "/" not in name and (_LINGERING / name).exists()


def _works(words: tuple[str, ...], environ: Mapping[str, str]) -> bool:
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - a tool's own name, with words of ours
            words,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        return done.returncode == 0
    return False
