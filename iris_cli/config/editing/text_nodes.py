"""Edits of a text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from io import StringIO
from itertools import pairwise

from msgspec import Struct


class Edit(Struct, frozen=True):
    """Replace the text from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with all edits applied. Edits at the same position are applied in order."""
    pieces, position = [], 0
    for edit in _sorted_edits(edits):
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


def have_overlap(edits: Sequence[Edit]) -> bool:
    """Return whether two edits change the same text."""
    return any(before.end > after.start for before, after in pairwise(_sorted_edits(edits)))


def _sorted_edits(edits: Sequence[Edit]) -> list[Edit]:
    return sorted(edits, key=lambda edit: (edit.start, edit.end))


def unified_diff(text: str, edits: Sequence[Edit], name: str) -> list[str]:
    """Return the edits in the format of `diff -u`, line by line; [] if nothing changes."""
    # StringIO splits only at line feeds, unlike `splitlines`.
    old, new = StringIO(text), StringIO(apply_edits(text, edits))
    shown: list[str] = []
    for line in difflib.unified_diff([*old], [*new], name if text else "/dev/null", name):
        shown.append(line.removesuffix("\n").removesuffix("\r"))
        if not line.endswith("\n"):
            shown.append("\\ No newline at end of file")
    return shown
