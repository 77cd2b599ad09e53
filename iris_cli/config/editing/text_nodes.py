"""YAML values with their positions in the text, and edits of that text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import pairwise

import yaml
from msgspec import Struct

from iris_cli.config.yaml_source import parser_events


class TextNode(Struct, frozen=True):
    """A value, and the `start` and `end` of its text, without a comment after it.

    `column`: the column of the first character, or of the dashes of a block list. `flow`: true if the value is written
    in braces or brackets. An empty value is at the position after the colon of its key. The `value` of a scalar is its
    parsed text.
    """

    start: int
    end: int
    column: int
    flow: bool
    value: str | tuple[TextNode, ...] | dict[str, TextNode]

    @property
    def entries(self) -> dict[str, TextNode]:
        """The values of a mapping by key; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple[TextNode, ...]:
        """The items of a list; empty for other values."""
        return self.value if isinstance(self.value, tuple) else ()

    def text(self, key: str) -> str:
        """Return the scalar of this mapping's key; "" if the key is missing or its value is no scalar."""
        node = self.entries.get(key)
        return node.value if node is not None and isinstance(node.value, str) else ""


def parse_nodes(text: str) -> TextNode:
    """Return the root node of a text that `read_yaml` has accepted."""
    events = parser_events(text)
    next(events)  # the start of the stream
    next(events)  # the start of the document
    return _node(text, next(events), events, 0)


def _node(text: str, event: yaml.Event, events: Iterator[yaml.Event], empty_position: int) -> TextNode:
    """Parse the value that begins with `event`. `empty_position`: the position of the value if it is empty."""
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(text, event, empty_position)
    assert isinstance(event, yaml.CollectionStartEvent)
    start, column, _ = _span(event)
    is_list = isinstance(event, yaml.SequenceStartEvent)
    items: list[TextNode] = []
    entries: dict[str, TextNode] = {}
    end = start
    while not isinstance(child := next(events), yaml.CollectionEndEvent):
        if is_list:
            items.append(_node(text, child, events, end))
            end = items[-1].end
        else:
            key = _node(text, child, events, end)
            value = _node(text, next(events), events, text.index(":", key.end) + 1)
            entries[str(key.value)] = value
            end = value.end
    flow = bool(event.flow_style)
    return TextNode(
        start, _span(child)[2] if flow else end, column, flow, tuple(items) if is_list else entries
    )


def _scalar(text: str, event: yaml.ScalarEvent, empty_position: int) -> TextNode:
    start, column, end = _span(event)
    if start == end:
        return TextNode(empty_position, empty_position, column, flow=False, value="")
    source = text[start:end].rstrip()  # the parser includes empty lines after a block scalar
    return TextNode(start, start + len(source), column, flow=False, value=event.value)


def _span(event: yaml.Event) -> tuple[int, int, int]:
    """Return the start, the column and the end of an event."""
    assert event.start_mark is not None
    assert event.end_mark is not None
    return event.start_mark.index, event.start_mark.column, event.end_mark.index


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
