"""Split a file into lines, one for each task.

This module is part of the program inside tasks, so it must work in Python 3.8.
"""

import re

from iris_cli.core.ids import clip
from iris_cli.core.model.array import MAX_INDEXES
from iris_cli.core.model.variables import MAX_STRING
from iris_cli.errors import UsageError

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
