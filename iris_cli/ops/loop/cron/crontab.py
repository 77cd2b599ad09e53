"""The operator's crontab: a block of lines between two marks, and nothing else of it is touched."""

from __future__ import annotations

import shlex
from contextlib import suppress

from iris_cli.core.units import format_duration
from iris_cli.errors import UsageError
from iris_cli.ops.loop.cron.entry import CronEntry, failed, run_tool

_LIST = ("crontab", "-l")
_WRITE = ("crontab", "-")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LARGEST_LOG = 512  # blocks of 512 bytes; of what was before that one file is kept
_THEN = " 2>/dev/null; "
_NONE = ("no crontab", "no such file", "can't open")
_WITHOUT = "iris cron install --systemd, or leave `iris watch --schedule` open"


def when(every: float) -> str:
    """The five fields of a crontab. Raises UsageError for what they can't say."""
    if every == _DAY:
        return "0 0 * * *"
    for unit, whole, fields in ((_MINUTE, _HOUR, "*/{} * * * *"), (_HOUR, _DAY, "0 */{} * * *")):
        if unit <= every < whole and every % unit == 0 and whole % every == 0:
            return fields.format(int(every // unit)).replace("*/1 ", "* ")
    raise UsageError(
        f"cron can't run every {format_duration(every)}",
        hint="use 1m, 5m, 15m or another divisor of an hour or a day; or --systemd",
    )


def line(entry: CronEntry) -> str:
    """The line of a cluster. Its output goes into one file, and when that is large it becomes the old one."""
    log = str(entry.log)
    size, old = shlex.quote(log), shlex.quote(f"{log}.1")
    rotate = f"find {size} -size +{_LARGEST_LOG} -exec mv -f {size} {old} \\;"
    command = f"{rotate}{_THEN}{shlex.join(entry.command)} >>{size} 2>&1"
    return f"{when(entry.every)} {command}".replace("%", "\\%")  # a bare one would end the line


def program(line: str) -> str:
    """What a line calls; '' if it is none of ours."""
    with suppress(ValueError, IndexError):
        return shlex.split(line.replace("\\%", "%").partition(_THEN)[2])[0]
    return ""


def every(line: str) -> float:
    """How often a line runs, in seconds; a minute if it is none of ours."""
    whole = (
        unit * number
        for unit, most in ((_MINUTE, 60), (_HOUR, 24))
        for number in range(1, most)
        if most % number == 0
    )
    return next((each for each in (*whole, _DAY) if line.startswith(f"{when(each)} ")), _MINUTE)


def install(entry: CronEntry) -> bool:
    """Have the line in the crontab, in place of the one before it. Returns whether anything changed."""
    return _become(entry, [line(entry)])


def remove(entry: CronEntry) -> bool:
    """Have no line of this cluster in the crontab. Returns whether there was one."""
    return _become(entry, [])


def installed(entry: CronEntry) -> str:
    """The line that is there, or ''."""
    lines = read().splitlines()
    first, last = _marks(entry)
    if first not in lines or last not in lines[lines.index(first) :]:
        return ""
    start = lines.index(first)
    return "\n".join(lines[start + 1 : lines.index(last, start)])


def _become(entry: CronEntry, wanted: list[str]) -> bool:
    before = read()
    first, last = _marks(entry)
    kept, inside, seen = [], False, False
    block = [first, *wanted, last] if wanted else []
    lines = before.splitlines()
    for number, each in enumerate(lines):
        if each == first and not inside and last in lines[number:]:
            inside = True
            kept += [] if seen else block
            seen = True
        elif not inside:
            kept.append(each)
        elif each == last:
            inside = False
    kept += [] if seen else block
    after = "".join(f"{each}\n" for each in kept)
    if after == before:
        return False
    done = run_tool(_WRITE, after, hint=_WITHOUT)
    if done.returncode:
        raise failed(_WRITE, done)
    return True


def read() -> str:
    """The crontab as it is. Raises IrisError."""
    done = run_tool(_LIST, hint=_WITHOUT)
    if done.returncode == 0:
        return done.stdout
    if not done.stdout and any(word in done.stderr.lower() for word in _NONE):
        return ""
    raise failed(_LIST, done)


def _marks(entry: CronEntry) -> tuple[str, str]:
    return (
        f"# iris: cycles of {entry.config} (remove with `iris cron remove`)",
        f"# iris: end of {entry.config}",
    )
