"""`.irisignore`: which files of a directory stay at home, in the syntax of `.gitignore`.

One file at the top of the directory; the last pattern that fits decides. Named classes such as `[[:alpha:]]` are not
known, and `?` is one character, where git takes one byte.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.errors import UsageError

IGNORE_FILE = ".irisignore"

_MOST_BYTES = 1 << 20
_TRAILING_BLANKS = re.compile(r"(?<!\\)((?:\\\\)*)[ \t\r]+$")


class _Pattern(Struct, frozen=True):
    regex: re.Pattern[str]
    kept: bool  # it began with `!`
    directories_only: bool


class IgnoreFile:
    """The patterns of one file; none where there is no file."""

    def __init__(self, text: str = "") -> None:
        """Raises UsageError for a pattern that can't be meant."""
        lines = enumerate(text.split("\n"), start=1)
        self._patterns = [each for number, line in lines if (each := _pattern(line, number)) is not None]

    def leaves_out(self, name: str, *, directory: bool) -> bool:
        """Whether this entry is left out, if what it lies in isn't. `name` is relative to the top, with `/`."""
        for each in reversed(self._patterns):
            if (directory or not each.directories_only) and each.regex.fullmatch(name):
                return not each.kept
        return False

    def leaves_out_file(self, name: str) -> bool:
        """The same for a file, or link, of which only its whole name is known."""
        if not self._patterns:
            return False
        ends = [place for place, sign in enumerate(name) if sign == "/"]
        return any(self.leaves_out(name[:end], directory=True) for end in ends) or self.leaves_out(
            name, directory=False
        )


def read_ignore_file(directory: Path) -> IgnoreFile | None:
    """The one of this directory, if there is one. Raises UsageError."""
    path = directory / IGNORE_FILE
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not a file", hint="move it away")
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than {_MOST_BYTES} bytes")
    try:
        return IgnoreFile(raw.decode("utf-8-sig", "surrogateescape"))
    except UsageError as error:
        raise UsageError(f"{path}:{error.message}", hint=error.hint) from error


def _pattern(line: str, number: int) -> _Pattern | None:
    text = _TRAILING_BLANKS.sub(r"\1", line)
    if not text or text.startswith("#"):
        return None
    kept = text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    try:
        regex = _translated(text.removeprefix("/"))
    except ValueError as error:
        raise UsageError(f"{number}: {clip(line)!r}: {error}", hint="see gitignore(5)") from error
    return _Pattern(re.compile(regex if anchored else f"(?:.*/)?{regex}", re.DOTALL), kept, directories_only)


_STARS = re.compile(r"(?:(?<=/)|^)\*\*(?=/|$)")


def _translated(pattern: str) -> str:
    """A regular expression for whole names. Raises ValueError."""
    made, place = "", 0
    while place < len(pattern):
        sign = pattern[place]
        if sign == "*" and _STARS.match(pattern, place):
            if place + 2 == len(pattern):  # `a/**`: everything in it
                return made + ".+"
            made, place = f"{made}(?:.+/)?", place + 3  # `**/`, `a/**/b`: any number of directories
        elif sign == "*":
            while pattern[place : place + 1] == "*":
                place += 1
            made += "[^/]*"
        elif sign == "?":
            made, place = f"{made}[^/]", place + 1
        elif sign == "[":
            among, place = _class(pattern, place)
            made += among
        elif sign == "\\":
            if place + 1 == len(pattern):
                raise ValueError("nothing follows the last backslash")
            made, place = made + re.escape(pattern[place + 1]), place + 2
        else:
            made, place = made + re.escape(sign), place + 1
    return made


def _class(pattern: str, start: int) -> tuple[str, int]:
    """`[a-z]` and the like, and where it ends. Raises ValueError."""
    place = start + 1
    negated = pattern[place : place + 1] in ("!", "^")
    place += negated
    inside, first = "", True
    while first or pattern[place : place + 1] != "]":
        first = False
        low, place = _member(pattern, place)
        high = low
        if pattern[place : place + 1] == "-" and pattern[place + 1 : place + 2] not in ("", "]"):
            high, place = _member(pattern, place + 1)
        if low > high:
            raise ValueError(f"the range {low!r}-{high!r} is empty")
        inside += f"{re.escape(low)}-{re.escape(high)}"
    return f"(?!/)[{'^' if negated else ''}{inside}]", place + 1


def _member(pattern: str, place: int) -> tuple[str, int]:
    if pattern[place : place + 1] == "\\":
        place += 1
    if pattern[place : place + 2] in ("[:", "[.", "[="):
        raise ValueError("named classes are not supported")
    if place >= len(pattern):
        raise ValueError("its '[' is not closed")
    return pattern[place], place + 1
