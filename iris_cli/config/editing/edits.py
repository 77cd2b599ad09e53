"""Changes of a text: made all at once, and shown before that as a unified diff."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

_CONTEXT = 3  # lines around a change, as in every diff


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


class _Change(Struct, frozen=True):
    """Lines `first` up to `last` of the old text give way to others."""

    first: int
    last: int
    lines: tuple[str, ...]


def unified_diff(text: str, edits: Sequence[Edit], name: str) -> list[str]:
    """The edits as `diff -u` would show them, line by line; none if they change nothing.

    A library would have to find out what is known here, and be slow where much has changed.
    """
    old = _lines(text)
    changes = _changes(text, old, edits)
    if not changes:
        return []
    found = [f"--- {name if text else '/dev/null'}", f"+++ {name}"]
    hunk: list[_Change] = []
    shift = 0
    for change in changes:
        if hunk and change.first - hunk[-1].last > 2 * _CONTEXT:
            found += _hunk(old, hunk, shift)
            shift += sum(len(each.lines) - (each.last - each.first) for each in hunk)
            hunk = []
        hunk.append(change)
    return [*found, *_hunk(old, hunk, shift)]


def _lines(text: str) -> list[str]:
    """With their line feeds, at which alone they end."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


def _changes(text: str, old: Sequence[str], edits: Sequence[Edit]) -> list[_Change]:
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    if text and not text.endswith("\n"):
        starts[-1] += 1  # what is put behind the last line belongs to it
    found: list[_Change] = []
    for group in _by_lines(starts, _ordered(edits)):
        first, last = _line_of(starts, group[0].start), _end_line(starts, group[-1])
        base = starts[first]
        moved = [Edit(each.start - base, each.end - base, each.text) for each in group]
        new = _lines(apply(text[base : starts[last]], moved))
        change = _narrowed(old, first, last, new)
        if change.lines or change.first < change.last:
            found.append(change)
    return found


def _by_lines(starts: Sequence[int], edits: Sequence[Edit]) -> list[list[Edit]]:
    """Edits that share a line belong together."""
    groups: list[list[Edit]] = []
    reach = -1
    for edit in edits:
        if groups and _line_of(starts, edit.start) < reach:
            groups[-1].append(edit)
        else:
            groups.append([edit])
        reach = max(reach, _end_line(starts, edit))
    return groups


def _line_of(starts: Sequence[int], position: int) -> int:
    return bisect_right(starts, position) - 1


def _end_line(starts: Sequence[int], edit: Edit) -> int:
    """The first line behind an edit; none is touched by lines that are put between two of them."""
    line = _line_of(starts, edit.end)
    is_whole = edit.text.endswith("\n") or (
        not edit.text and starts[_line_of(starts, edit.start)] == edit.start
    )
    return line if starts[line] == edit.end and is_whole else line + 1


def _narrowed(old: Sequence[str], first: int, last: int, new: list[str]) -> _Change:
    """Without the lines at both ends that stay as they are."""
    while first < last and new and old[first] == new[0]:
        first, new = first + 1, new[1:]
    while first < last and new and old[last - 1] == new[-1]:
        last, new = last - 1, new[:-1]
    return _Change(first, last, tuple(new))


def _hunk(old: Sequence[str], changes: Sequence[_Change], shift: int) -> list[str]:
    first = max(0, changes[0].first - _CONTEXT)
    last = min(len(old), changes[-1].last + _CONTEXT)
    lines: list[str] = []
    at = first
    for change in changes:
        lines += [f" {line}" for line in old[at : change.first]]
        lines += [f"-{line}" for line in old[change.first : change.last]]
        lines += [f"+{line}" for line in change.lines]
        at = change.last
    lines += [f" {line}" for line in old[at:last]]
    more = sum(len(each.lines) - (each.last - each.first) for each in changes)
    count = last - first
    head = f"@@ -{_span(first, count)} +{_span(first + shift, count + more)} @@"
    shown = [head]
    for line in lines:
        shown.append(line.removesuffix("\n").removesuffix("\r"))
        if not line.endswith("\n"):
            shown.append("\\ No newline at end of file")
    return shown


def _span(first: int, count: int) -> str:
    return f"{first if count == 0 else first + 1},{count}"
