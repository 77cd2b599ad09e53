"""Scheduled cycles for `iris cron`: by a crontab line or by a timer of systemd.

Paths are absolute, because cron uses another directory.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.core import clip, format_duration
from iris_cli.errors import IrisError, NotWritableError, UsageError
from iris_cli.files import DISK, replace_file

LOG = "cron.log"
_TIMEOUT = 60.0  # seconds for crontab and systemctl


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


def tool_error(words: Sequence[str], result: subprocess.CompletedProcess[str]) -> IrisError:
    message = clip((result.stderr or result.stdout).strip().replace("\n", "; "))
    return IrisError(f"{' '.join(words)} failed: {message or f'exit {result.returncode}'}")


# The operator's crontab. It has one marked block of lines per cluster. iris keeps all other lines.


_LIST = ("crontab", "-l")
_WRITE = ("crontab", "-")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MAX_LOG = 512  # blocks of 512 bytes; one older log is kept
_SEPARATOR = " 2>/dev/null; "
_NO_CRONTAB = ("no crontab", "no such file", "can't open")
_CRONTAB_ALTERNATIVE = "iris cron install --systemd, or leave `iris watch --schedule` open"


def time_fields(every: float) -> str:
    """Return the five time fields of a crontab line. Raises UsageError for intervals that cron can't express."""
    if every == _DAY:
        return "0 0 * * *"
    for unit, next_unit, fields in ((_MINUTE, _HOUR, "*/{} * * * *"), (_HOUR, _DAY, "0 */{} * * *")):
        if unit <= every < next_unit and every % unit == 0 and next_unit % every == 0:
            return fields.format(int(every // unit)).replace("*/1 ", "* ")
    raise UsageError(
        f"cron can't run every {format_duration(every)}",
        hint="use 1m, 5m, 15m or another divisor of an hour or a day; or --systemd",
    )


def crontab_line(entry: CronEntry) -> str:
    """Return the cluster's crontab line. The line rotates a log, and appends the output of the cycle to it."""
    log, old_log = shlex.quote(str(entry.log)), shlex.quote(f"{entry.log}.1")
    rotate = f"find {log} -size +{_MAX_LOG} -exec mv -f {log} {old_log} \\;"
    command = f"{rotate}{_SEPARATOR}{shlex.join(entry.command)} >>{log} 2>&1"
    return f"{time_fields(entry.every)} {command}".replace("%", "\\%")  # an unescaped % ends the command


def crontab_program(line: str) -> str:
    """Return the program that a line calls; '' if iris did not write the line."""
    with suppress(ValueError, IndexError):
        return shlex.split(line.replace("\\%", "%").partition(_SEPARATOR)[2])[0]
    return ""


def install_crontab(entry: CronEntry) -> bool:
    """Install the line in the crontab, replacing the previous one. Return True if the crontab changed."""
    return _replace_block(entry, crontab_line(entry))


def remove_crontab(entry: CronEntry) -> bool:
    """Remove the cluster's lines from the crontab. Return True if the crontab contained such lines.

    A machine without cron has no such lines.
    """
    return shutil.which(_LIST[0]) is not None and _replace_block(entry, "")


def crontab_lines(entry: CronEntry) -> str:
    """Return the installed lines, or ''."""
    found = _block_pattern(entry).search(read_crontab())
    return found[1].rstrip("\n") if found else ""


def _replace_block(entry: CronEntry, line: str) -> bool:
    """Write the cluster's block with this line, or remove the block if `line` is ''. Return True after a change."""
    before = read_crontab()
    first, last = _marks(entry)
    block = f"{first}\n{line}\n{last}\n" if line else ""
    head, *rest = _block_pattern(entry).sub("\0", before).split("\0")
    after = head + block + "".join(rest)
    if after == before:
        return False
    result = run_tool(_WRITE, after, hint=_CRONTAB_ALTERNATIVE)
    if result.returncode:
        raise tool_error(_WRITE, result)
    return True


def read_crontab() -> str:
    """Return the crontab's text, with a line feed at its end. Raises IrisError."""
    result = run_tool(_LIST, hint=_CRONTAB_ALTERNATIVE)
    if result.returncode == 0:
        return result.stdout + ("\n" if result.stdout[-1:] not in ("", "\n") else "")
    if not result.stdout and any(word in result.stderr.lower() for word in _NO_CRONTAB):
        return ""
    raise tool_error(_LIST, result)


def _marks(entry: CronEntry) -> tuple[str, str]:
    """Return the first and the last line of the cluster's block."""
    return (
        f"# iris: cycles of {entry.config} (remove with `iris cron remove`)",
        f"# iris: end of {entry.config}",
    )


def _block_pattern(entry: CronEntry) -> re.Pattern[str]:
    """Return the pattern of the cluster's block. Its group is the lines between the marks."""
    first, last = map(re.escape, _marks(entry))
    return re.compile(f"^{first}\\n((?:(?!{first}\\n).*\\n)*?){last}\\n", re.MULTILINE)


# Timer units of the operator's systemd user manager. The output of the cycles goes to the systemd journal.


_SYSTEMCTL = ("systemctl", "--user")
_TIMER_ALTERNATIVE = "iris cron install uses the crontab"


def unit_files(entry: CronEntry) -> dict[str, str]:
    cluster = entry.cluster.replace("%", "%%")
    service = f"""\
[Unit]
Description=iris: one cycle of {cluster}

[Service]
Type=oneshot
ExecStart={" ".join(map(_quoted_word, entry.command))}
# Some workers did not answer: the next cycle asks them again.
SuccessExitStatus=7
"""
    timer = f"""\
[Unit]
Description=iris: cycles of {cluster}

[Timer]
OnActiveSec=1s
OnUnitActiveSec={entry.every:g}s
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
    return {f"{entry.name}.service": service, f"{entry.name}.timer": timer}


def install_timer(entry: CronEntry, directory: Path) -> bool:
    """Install and start the timer. Return False if it was already installed. Raises IrisError, NotWritableError."""
    wanted = unit_files(entry)
    before = {name: _read_text(directory / name) for name in wanted}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            replace_file(DISK, directory / name, text.encode(), alone=False)
    except OSError as error:  # the hints of `writing` are about the state directory
        raise NotWritableError(f"{directory} can't be written: {error.strerror or error}") from error
    try:
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", f"{entry.name}.timer")
    except IrisError:
        for name in wanted:
            if not before[name]:  # a timer that was never started must not look installed
                (directory / name).unlink(missing_ok=True)
        raise
    return before != wanted


def remove_timer(entry: CronEntry, directory: Path) -> bool:
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
    result = run_tool([*_SYSTEMCTL, "is-active", name], hint=_TIMER_ALTERNATIVE)
    return f"{name} ({result.stdout.strip() or 'not known'})"


def installed_service(entry: CronEntry, directory: Path) -> str:
    return _read_text(directory / f"{entry.name}.service")


def service_program(service: str) -> str:
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
    result = run_tool([*_SYSTEMCTL, *words], hint=_TIMER_ALTERNATIVE)
    if result.returncode:
        raise tool_error([*_SYSTEMCTL, *words], result)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _quoted_word(word: str) -> str:
    """Return a word quoted for the command line of a unit (systemd.service(5))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("%", "%%")
    return f'"{escaped}"'
