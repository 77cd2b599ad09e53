"""The tasks of an array: indexes such as `0-9,20`, `0-30:10`, or `0-99%4` (4 tasks at a time), or lines of a file.

The functions for lines are a part of the program inside tasks, so they must work in Python 3.8.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from iris_cli.core.ids import clip
from iris_cli.core.model.variables import MAX_STRING
from iris_cli.core.text import pattern
from iris_cli.errors import UsageError

MAX_INDEXES = 10_000  # maximum number of tasks of one array

_PART = pattern(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_HINT = "write 0-9, 0-30:10, 1,5,7 or 0-99%4"


def parse_array(text: str) -> tuple[tuple[int, ...], int]:
    """Return the indexes in order, and the limit of tasks that run at a time (0: no limit). Raises UsageError."""
    parts, sign, limit = text.replace(" ", "").partition("%")
    if sign and (re.fullmatch("[0-9]{1,9}", limit) is None or int(limit) == 0):
        raise UsageError(f"{clip(limit)!r} is not a number of tasks", hint=_HINT)
    indexes: dict[int, None] = {}
    for part in parts.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"{clip(text)!r} is not a list of indexes", hint=_HINT)
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0:
            raise UsageError(f"{clip(part)!r} has no indexes", hint=_HINT)
        if (last - first) // step >= MAX_INDEXES:
            raise UsageError(
                f"{clip(part)!r} has more than {MAX_INDEXES} indexes", hint="split it into several jobs"
            )
        indexes |= dict.fromkeys(range(first, last + 1, step))
    return tuple(sorted(indexes)), int(limit or 0)


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the indexes as the log stores them, such as `0-9,20`. Ranges have step 1."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


@lru_cache(maxsize=256)
def indexes_of(array: str) -> tuple[int, ...]:
    """Return the indexes in a text from `format_indexes`."""
    return parse_array(array)[0]


LINE_VARIABLE = "IRIS_EACH_LINE"


def split_lines(file: str, data: bytes) -> tuple[str, ...]:
    """Return the lines of a file without line ends. Raises UsageError for an empty file or a binary file."""
    name = clip(file)
    lines = re.sub(rb"\A\xef\xbb\xbf|\n\Z", b"", data).split(b"\n") if data else []
    if not lines:
        raise UsageError(f"{name} has no lines")
    if len(lines) > MAX_INDEXES:
        raise UsageError(
            f"{name} has {len(lines)} lines, more than {MAX_INDEXES}", hint="split it into several jobs"
        )
    return tuple(_decode_line(f"{name}:{number}", line) for number, line in enumerate(lines, start=1))


def _decode_line(where: str, line: bytes) -> str:
    line = re.sub(rb"\r\Z", b"", line)
    check_line(f"{where}: the line", line)
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: the line is not UTF-8 text") from error


def check_line(subject: str, line: bytes) -> None:
    """Raise UsageError if the line can't be the value of one variable. `subject`: the first words of the message."""
    if b"\0" in line:
        raise UsageError(f"{subject} has a NUL byte")
    if b"\n" in line:
        raise UsageError(f"{subject} has a line break")
    if len(LINE_VARIABLE) + 1 + len(line) > MAX_STRING:
        raise UsageError(
            f"{subject} has {len(line)} bytes, more than a variable can hold", hint="write the name of a file"
        )
