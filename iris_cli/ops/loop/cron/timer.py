"""Timer units of the operator's systemd user manager. The output of the cycles goes to the systemd journal."""

from __future__ import annotations

import os
import re
from pathlib import Path

from iris_cli.errors import NotWritableError
from iris_cli.ops.loop.cron.entry import CronEntry, run_tool, tool_error

_SYSTEMCTL = ("systemctl", "--user")
_ALTERNATIVE = "iris cron install uses the crontab"


def unit_files(entry: CronEntry) -> dict[str, str]:
    """Return the unit files by name."""
    service = f"""\
[Unit]
Description=iris: one cycle of {_escaped(entry.cluster)}

[Service]
Type=oneshot
ExecStart={" ".join(map(_quoted, entry.command))}
# Some workers did not answer: the next cycle asks them again.
SuccessExitStatus=7
"""
    timer = f"""\
[Unit]
Description=iris: cycles of {_escaped(entry.cluster)}

[Timer]
OnActiveSec=1s
OnUnitActiveSec={entry.every:g}s
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
    return {f"{entry.name}.service": service, f"{entry.name}.timer": timer}


def install(entry: CronEntry, directory: Path) -> bool:
    """Install and start the timer. Return False if it was already installed. Raises IrisError, NotWritableError."""
    wanted = unit_files(entry)
    changed = any(_read_text(directory / name) != text for name, text in wanted.items())
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            draft = directory / f".{name}.{os.getpid()}"
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, directory / name)
    except OSError as error:
        raise NotWritableError(f"{directory} can't be written: {error.strerror or error}") from error
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", f"{entry.name}.timer")
    return changed


def remove(entry: CronEntry, directory: Path) -> bool:
    """Stop and remove the timer. Return False if it was not installed."""
    existing = [directory / name for name in unit_files(entry) if (directory / name).is_file()]
    if not existing:
        return False
    _systemctl("disable", "--now", f"{entry.name}.timer")
    for path in existing:
        path.unlink(missing_ok=True)
    _systemctl("daemon-reload")
    return True


def timer_state(entry: CronEntry, directory: Path) -> str:
    """Return the name and state of the installed timer; '' if it is not installed."""
    name = f"{entry.name}.timer"
    if not (directory / name).is_file():
        return ""
    result = run_tool([*_SYSTEMCTL, "is-active", name], hint=_ALTERNATIVE)
    return f"{name} ({result.stdout.strip() or 'not known'})"


def installed_service(entry: CronEntry, directory: Path) -> str:
    """Return the text of the installed service; '' if it is not installed."""
    return _read_text(directory / f"{entry.name}.service")


def called_program(service: str) -> str:
    """Return the program that a service calls; '' if iris did not write the service."""
    found = re.search(r'^ExecStart="((?:[^"\\]|\\.)*)"', service, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1]).replace("$$", "$").replace("%%", "%") if found else ""


def unit_directory(home: Path, config_home: str) -> Path:
    """Return the directory of a user's systemd units. `config_home`: the value of XDG_CONFIG_HOME."""
    base = Path(config_home) if config_home.startswith("/") else home / ".config"
    return base / "systemd" / "user"


def has_lingering(user: str) -> bool:
    """Return True if the timer also runs when the user is not logged in."""
    result = run_tool(("loginctl", "show-user", user, "--property=Linger"))
    return result.stdout.strip() != "Linger=no"


def _systemctl(*words: str) -> None:
    result = run_tool([*_SYSTEMCTL, *words], hint=_ALTERNATIVE)
    if result.returncode:
        raise tool_error([*_SYSTEMCTL, *words], result)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _quoted(word: str) -> str:
    """Return a word quoted for the command line of a unit (systemd.service(5))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_escaped(escaped)}"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
