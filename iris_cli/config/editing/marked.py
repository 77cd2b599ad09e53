"""A YAML file as values that know where their text stands, and changes of that text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import pairwise

import yaml
from msgspec import Struct

from iris_cli.config.yaml_source import parser_events


class Marked(Struct, frozen=True):
    """A value, and its text from `start` up to `end`, without what is said behind it.

    `column` is that of its first character, for a list in lines that of its dashes. `flow`: it is written in braces or
    brackets. An empty value begins and ends behind the colon of its key. A scalar is its text as it reads.
    """

    start: int
    end: int
    column: int
    flow: bool
    value: str | tuple[Marked, ...] | dict[str, Pair]

    @property
    def pairs(self) -> dict[str, Pair]:
        """Of a mapping; of anything else none."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple[Marked, ...]:
        """Of a list; of anything else none."""
        return self.value if isinstance(self.value, tuple) else ()

    def text(self, key: str) -> str:
        """The scalar of a key of this mapping, '' where there is none."""
        pair = self.pairs.get(key)
        return pair.value.value if pair is not None and isinstance(pair.value.value, str) else ""


class Pair(Struct, frozen=True):
    """One entry of a mapping."""

    key: Marked
    value: Marked


def marked(text: str) -> Marked:
    """The root of a text in which `read_yaml` found no fault."""
    events = parser_events(text)
    next(events)  # the start of the stream
    next(events)  # the start of the document
    return _node(text, next(events), events, 0)


def _node(text: str, event: yaml.Event, events: Iterator[yaml.Event], after: int) -> Marked:
    """`after` is where the text stands that this follows: an empty value has no place of its own."""
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(text, event, after)
    assert isinstance(event, yaml.CollectionStartEvent)
    start, column, _ = _span(event)
    is_list = isinstance(event, yaml.SequenceStartEvent)
    items: list[Marked] = []
    pairs: dict[str, Pair] = {}
    end = start
    while not isinstance(child := next(events), yaml.CollectionEndEvent):
        if is_list:
            items.append(_node(text, child, events, end))
            end = items[-1].end
        else:
            key = _node(text, child, events, end)
            value = _node(text, next(events), events, text.index(":", key.end) + 1)
            pairs[str(key.value)] = Pair(key, value)
            end = value.end
    flow = bool(event.flow_style)
    return Marked(start, _span(child)[2] if flow else end, column, flow, tuple(items) if is_list else pairs)


def _scalar(text: str, event: yaml.ScalarEvent, after: int) -> Marked:
    start, column, end = _span(event)
    if start == end:
        return Marked(after, after, column, flow=False, value="")
    written = text[start:end].rstrip()  # to one in lines those belong, too, that are empty behind it
    return Marked(start, start + len(written), column, flow=False, value=event.value)


def _span(event: yaml.Event) -> tuple[int, int, int]:
    """Where it begins, in which column, and where it ends."""
    assert event.start_mark is not None
    assert event.end_mark is not None
    return event.start_mark.index, event.start_mark.column, event.end_mark.index


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
