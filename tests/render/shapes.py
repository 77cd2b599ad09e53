"""The shape of JSON documents: their fields, and the types of the values seen in each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
STATE = re.compile(r"[A-Z][A-Z_]+")

KEYED = frozenset(
    {"attributes", "child_states", "inherited", "kept", "labels", "later", "metadata", "missing", "over"}
    | {"placed", "routed", "stopping", "updated"}
)
"""Fields whose objects have ids or free names as keys: the keys are not part of the shape."""


@dataclass
class Shape:
    """All values seen at one place of a document."""

    values: Counter[str] = field(default_factory=Counter)
    members: dict[str, Shape] = field(default_factory=dict)

    def add(self, value: Any, name: str = "") -> None:
        """Count one value. States are counted by name, other values by type."""
        self.values[_type_of(value)] += 1
        if isinstance(value, list):
            for each in value:
                self._member("[]").add(each)
        elif isinstance(value, dict):
            for key, each in value.items():
                self._member(".*" if name in KEYED else f".{key}").add(each, key)

    def lines(self, place: str = "") -> Iterator[str]:
        """One line for each field: `.jobs[].reason?: null | text`. A `?` marks fields that some objects lack."""
        for name, shape in sorted(self.members.items()):
            missing = name.startswith(".") and name != ".*" and shape.values.total() < self.values["object"]
            if name != "[]":
                yield f"{place}{name}{'?' if missing else ''}: {shape.types()}"
            yield from shape.lines(place + name)

    def types(self) -> str:
        """`null | text`, `list of number`."""
        items = self.members.get("[]")
        return " | ".join(
            f"list of {items.types()}" if items and each == "list" else each for each in sorted(self.values)
        )

    def _member(self, name: str) -> Shape:
        return self.members.setdefault(name, Shape())


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case list():
            return "list"
        case dict():
            return "object"
    if TIME.fullmatch(value):
        return "time"
    return str(value) if STATE.fullmatch(value) else "text"
