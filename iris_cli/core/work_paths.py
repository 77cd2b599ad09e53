"""Paths below a task's work directory, relative to it, and where files that are fetched from there go."""

from __future__ import annotations

from iris_cli.core.ids import Token

PULLED = "iris-out"
"""Default directory of files fetched from workers; a directory of this name is never shipped."""

_ENDS = frozenset(" \t\n\r\v\f\x1b\0\"'`()[]{}<>=,;:|&!‘’“”")
"""Characters that end a path in running text. A path that has one of them is left as it is."""
_LONGEST = 4096  # characters: no system has a longer path
_OF_A_COLOR = frozenset("0123456789;:")


def relative_paths(text: str, token: Token) -> str:
    """`text` with each path below the work directory of this attempt relative to it, and the directory itself as `.`.

    The directory is `ANY/a/TOKEN/work`: the home directory of the worker and its symlinks are unknown on this machine,
    and a token is random. Only whole components of absolute paths count. Takes time linear in the text.
    """
    tail = f"/a/{token}/work"
    at = text.find(tail)
    if at < 0:
        return text
    parts: list[str] = []
    done = scanned = 0
    while at >= 0:
        end = at + len(tail)
        start = _start(text, scanned, at)
        below = _below(text, end)
        if start is not None and below is not None:
            shown, end = below
            parts += (text[done:start], shown)
            done = end
        scanned = end  # nothing is read backwards twice
        at = text.find(tail, end)
    return "".join((*parts, text[done:]))


def _start(text: str, floor: int, at: int) -> int | None:
    """The index where the absolute path that goes on at `at` begins, at `floor` or later; None if it is not one."""
    least = max(floor, at - _LONGEST)
    start = at
    while start > least and text[start - 1] not in _ENDS:
        start -= 1
    if start == least > 0:
        return None  # it is too long, or begins before another hit
    if text[start] == "/":
        is_url = text.startswith("//", start) and text[start - 1 : start] == ":"
        return None if is_url else start
    slash = text.find("/", start, at + 1)
    return slash if _is_color(text, least, start, slash) else None


def _is_color(text: str, least: int, start: int, end: int) -> bool:
    """Whether `text[start:end]` is the end of a colour, such as `31m` of `ESC[1;31m`."""
    if text[end - 1] != "m" or not _OF_A_COLOR.issuperset(text[start : end - 1]):
        return False
    while start > least and text[start - 1] in _OF_A_COLOR:
        start -= 1
    return text.endswith("\x1b[", least, start)


def _below(text: str, end: int) -> tuple[str, int] | None:
    """What the directory that ends at `end` becomes, and the index of the rest; None for a longer name."""
    if end == len(text) or text[end] in _ENDS:
        return ".", end
    if text[end] != "/":
        return None
    while end < len(text) and text[end] == "/":
        end += 1
    return ("./" if end == len(text) or text[end] in _ENDS else ""), end
