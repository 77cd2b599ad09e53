"""Regular expressions compiled on first use, checks of text, and suggestions for mistyped words."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from iris_cli.core.ids import clip
from iris_cli.errors import UsageError


def pattern(regex: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like `re.compile`, compiled on first use."""
    return cast("re.Pattern[str]", _Uncompiled(regex, flags))


class _Uncompiled:
    """A stand-in for a pattern. It compiles the pattern when an attribute is read, and caches the attribute."""

    def __init__(self, regex: str, flags: int) -> None:
        self._given = regex, flags

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            found = self.__dict__[name] = getattr(re.compile(*self._given), name)
            return found


def check_utf8(label: str, text: str) -> None:
    """Raise UsageError if a text can't be encoded in UTF-8: an argument of this process with other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{label} is not valid UTF-8 text") from error


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar of `words`, ignoring case, or None if no word is similar.

    Words that begin with `word` have precedence, then words with two adjacent letters swapped (`tup` for `tpu`).
    """
    wanted = word.casefold()
    by_folded = {each.casefold(): each for each in sorted(words, reverse=True)}
    close = sorted(each for each in by_folded if len(wanted) > 1 and each.startswith(wanted))
    close = close or sorted(each for each in by_folded if _has_two_letters_swapped(wanted, each))
    if not close:
        import difflib  # slow to import, and rare

        close = difflib.get_close_matches(wanted, by_folded, n=1)
    return by_folded[close[0]] if close else None


def _has_two_letters_swapped(word: str, other: str) -> bool:
    if len(word) != len(other) or word == other:
        return False
    position = next(index for index, letter in enumerate(word) if letter != other[index])
    swapped = word[:position] + word[position : position + 2][::-1] + word[position + 2 :]
    return swapped == other


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for hints, or '' without a similar word."""
    found = nearest(word, words)
    return f"did you mean {found!r}?" if found else ""


def one_of(word: str, words: Iterable[str]) -> str:
    """Return the entry of `words` that equals `word`, ignoring case. Raises UsageError with a suggestion."""
    known = list(map(str, words))
    for each in known:
        if each.casefold() == word.strip().casefold():
            return each
    raise UsageError(f"{clip(word)!r} is not one of {', '.join(known)}", hint=did_you_mean(clip(word), known))


def parse_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Parse the texts NAME=VALUE of an option. Raises UsageError."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} {text[:80]!r} is not NAME=VALUE")
        found[name] = value
    return found


def parse_variables(texts: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Parse the texts NAME=VALUE or NAME of `--env`; NAME alone takes the value in `environ`. Raises UsageError."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign and name not in environ:
            name = name[:80]
            raise UsageError(f"--env {name}: not set in this shell", hint=f"write --env {name}=VALUE")
        found[name] = value if sign else environ[name]
    return found


def request_name(text: str) -> str:
    """Return the text if it can name a request. Raises UsageError."""
    if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", text):
        hint = "use 1 to 64 letters, digits, '.', '_' and '-'"
        raise UsageError(f"{clip(text)!r} is not a request id", hint=hint)
    return text


def parse_tail(text: str) -> int | None:
    """Parse a number of lines; None for `all`."""
    if not re.fullmatch("all|[0-9]{1,9}", text):
        raise UsageError(f"--tail {text[:20]!r} is not a number of lines", hint="write a number, or all")
    return None if text == "all" else int(text)
