"""Many names in few words: `v5a-[0-3,7]`, `train/task-[0-499]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from iris_cli.core.model.array import format_indexes
from iris_cli.core.text import pattern

_NUMBERED = pattern(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)
MOST_PARTS = 6


def fold(names: Iterable[str], most: int = MOST_PARTS) -> str:
    """The names with equal stems folded, stems in the order of their first appearance, numbers ascending.

    At most `most` stems, and for each `most` runs of numbers, are shown; an ellipsis stands for the rest.
    Numbers with leading zeros stay as they are: `w-01` must not be read as `w-1`.
    """
    stems: dict[tuple[str, bool], set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            stems[name, False] = set()
        else:
            stems.setdefault((match[1], True), set()).add(int(match[2]))
    words = [_word(stem, numbers, most) for (stem, _), numbers in stems.items()]
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")


def by_words(said: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Of names and what is to be said of them: what is the same of several is there once, in order."""
    names: dict[str, list[str]] = {}
    for name, words in said:
        names.setdefault(words, []).append(name)
    return [(those, words) for words, those in names.items()]


def _word(stem: str, numbers: set[int], most: int) -> str:
    runs = format_indexes(sorted(numbers)).split(",")
    if len(numbers) < 2:
        return stem + "".join(runs)
    return f"{stem}[{','.join(runs[:most])}{',…' if len(runs) > most else ''}]"
