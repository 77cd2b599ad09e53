"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` most like `word`, letter case aside, or None if none is like it."""
    import difflib  # only a mistake pays for it

    by_folded = {each.casefold(): each for each in sorted(words, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`did you mean 'x'?`, or '' where nothing is like it: for hints."""
    found = nearest(word, words)
    return f"did you mean {found!r}?" if found else ""
