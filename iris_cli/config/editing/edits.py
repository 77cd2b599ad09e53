"""Changes of a text: made all at once, and shown before that as a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from io import StringIO
from itertools import pairwise

from msgspec import Struct


class Edit(Struct, frozen=True):
    """What stands from `start` up to `end` gives way to `text`."""

    start: int
    end: int
    text: str


def apply(text: str, edits: Sequence[Edit]) -> str:
    """The text with all edits made; those at one place in the order they are given."""
    pieces, at = [], 0
    for edit in _ordered(edits):
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def overlapping(edits: Sequence[Edit]) -> bool:
    """Whether two of them would change the same text."""
    return any(before.end > after.start for before, after in pairwise(_ordered(edits)))


def _ordered(edits: Sequence[Edit]) -> list[Edit]:
    return sorted(edits, key=lambda edit: (edit.start, edit.end))


def unified_diff(text: str, edits: Sequence[Edit], name: str) -> list[str]:
    """The edits as `diff -u` shows them, line by line; empty if they change nothing."""
    old, new = StringIO(text), StringIO(apply(text, edits))  # files: only a line feed ends a line
    shown: list[str] = []
    for line in difflib.unified_diff([*old], [*new], name if text else "/dev/null", name):
        shown.append(line.removesuffix("\n").removesuffix("\r"))
        if not line.endswith("\n"):
            shown.append("\\ No newline at end of file")
    return shown
