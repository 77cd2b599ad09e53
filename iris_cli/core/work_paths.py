"""Show paths relative to a task's work directory."""

from iris_cli.core.ids import Token

PULL_DIRECTORY = "iris-out"
"""Default directory of files copied from workers. A directory of this name is never packed."""

_END_CHARACTERS = frozenset(" \t\n\r\v\f\x1b\0\"'`()[]{}<>=,;:|&!‘’“”")
"""Characters that end a path in running text. A path that contains one of them is left unchanged."""
_MAX_PATH = 4096  # characters
_COLOR_CHARACTERS = frozenset("0123456789;:")


def relative_paths(text: str, token: Token) -> str:
    """Return `text` with each path below the attempt's work directory made relative, and the directory itself as `.`.

    The directory is recognized as `.../a/TOKEN/work`, because this machine does not know the worker's home directory
    and symlinks. Only whole components of absolute paths match. The script `.../a/TOKEN/run`, which starts the command,
    becomes `run` in the messages of a shell. The time is linear in the length of the text.
    """
    attempt = f"/a/{token}/"
    at = text.find(attempt)
    if at < 0:
        return text
    parts: list[str] = []
    copied_until = scanned = 0
    while at >= 0:
        end = at + len(attempt)
        start = _find_path_start(text, scanned, at)
        replacement = _replace_directory(text, end)
        if start is not None and replacement is not None:
            shown, end = replacement
            parts += (text[copied_until:start], shown)
            copied_until = end
        scanned = end  # the backward search reads no text twice
        at = text.find(attempt, end)
    return "".join((*parts, text[copied_until:]))


def _find_path_start(text: str, earliest: int, at: int) -> int | None:
    """Return the start of the absolute path that contains index `at`, or None. It must be at `earliest` or later."""
    limit = max(earliest, at - _MAX_PATH)
    start = at
    while start > limit and text[start - 1] not in _END_CHARACTERS:
        start -= 1
    if start == limit > 0:
        return None  # too long, or begins before `earliest`
    if text[start] == "/":
        is_url = text.startswith("//", start) and text[start - 1 : start] == ":"
        return None if is_url else start
    slash = text.find("/", start, at + 1)
    return slash if _is_color(text, limit, start, slash) else None


def _is_color(text: str, limit: int, start: int, end: int) -> bool:
    """Return whether `text[start:end]` is the end of a colour code, such as `31m` of `ESC[1;31m`."""
    if text[end - 1] != "m" or not _COLOR_CHARACTERS.issuperset(text[start : end - 1]):
        return False
    while start > limit and text[start - 1] in _COLOR_CHARACTERS:
        start -= 1
    return text.endswith("\x1b[", limit, start)


def _replace_directory(text: str, end: int) -> tuple[str, int] | None:
    """Return the replacement for the work directory or the script, and the index of the rest of the path.

    `end` is the end of the attempt's directory. Return None for its other entries, such as `work2`.
    """
    if text.startswith("run:", end):
        return "run", end + len("run")
    if not text.startswith("work", end):
        return None
    end += len("work")
    if end == len(text) or text[end] in _END_CHARACTERS:
        return ".", end
    if text[end] != "/":
        return None
    while end < len(text) and text[end] == "/":
        end += 1
    return ("./" if end == len(text) or text[end] in _END_CHARACTERS else ""), end
