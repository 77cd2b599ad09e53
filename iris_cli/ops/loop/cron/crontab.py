"""The operator's crontab. It has one marked block of lines per cluster. iris keeps all other lines."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

from iris_cli.core.units import format_duration
from iris_cli.errors import UsageError
from iris_cli.ops.loop.cron.entry import CronEntry, run_tool, tool_error

_LIST = ("crontab", "-l")
_WRITE = ("crontab", "-")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MAX_LOG = 512  # blocks of 512 bytes; one older log is kept
_SEPARATOR = " 2>/dev/null; "
_NO_CRONTAB = ("no crontab", "no such file", "can't open")
_ALTERNATIVE = "iris cron install --systemd, or leave `iris watch --schedule` open"


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


def called_program(line: str) -> str:
    """Return the program that a line calls; '' if iris did not write the line."""
    with suppress(ValueError, IndexError):
        return shlex.split(line.replace("\\%", "%").partition(_SEPARATOR)[2])[0]
    return ""


def install(entry: CronEntry) -> bool:
    """Install the line in the crontab, replacing the previous one. Return True if the crontab changed."""
    return _replace_block(entry, crontab_line(entry))


def remove(entry: CronEntry) -> bool:
    """Remove the cluster's lines from the crontab. Return True if the crontab contained such lines."""
    return _replace_block(entry, "")


def installed_lines(entry: CronEntry) -> str:
    """Return the installed lines, or ''."""
    found = _block_pattern(entry).search(read())
    return found[1].rstrip("\n") if found else ""


def _replace_block(entry: CronEntry, line: str) -> bool:
    """Write the cluster's block with this line, or remove the block if `line` is ''. Return True after a change."""
    before = read()
    first, last = _marks(entry)
    block = f"{first}\n{line}\n{last}\n" if line else ""
    head, *rest = _block_pattern(entry).sub("\0", before).split("\0")
    after = head + block + "".join(rest)
    if after == before:
        return False
    result = run_tool(_WRITE, after, hint=_ALTERNATIVE)
    if result.returncode:
        raise tool_error(_WRITE, result)
    return True


def read() -> str:
    """Return the crontab's text, with a line feed at its end. Raises IrisError."""
    result = run_tool(_LIST, hint=_ALTERNATIVE)
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
