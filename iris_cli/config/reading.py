"""Convert nodes to values. A section is read key by key; keys that were never read are unknown.

A reader is a function that converts a `Place` to a value. It raises UsageError or ValueError for an invalid value; the
section reports the error and uses the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import NoReturn, TypeVar, overload

from msgspec import Struct, field

from iris_cli.config.yaml_source import Node, Report
from iris_cli.core import clip, did_you_mean, pattern
from iris_cli.errors import UsageError

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)

_SIMPLE_KEY = pattern(r"[A-Za-z0-9_.:/-]{1,80}")


class Place(Struct, frozen=True):
    """A node, its path in the file, and the report for its problems."""

    node: Node
    path: str
    report: Report

    def read(self, reader: Callable[[Place], T]) -> T | None:
        """Return the reader's result, None if it reported a problem."""
        try:
            return reader(self)
        except UsageError as error:
            self.problem(error.message, error.hint)
        except ValueError as error:
            self.problem(str(error))
        return None

    def problem(self, message: str, hint: str = "") -> None:
        self.report.add(self.node.line, self.path, message, hint)

    def warn(self, message: str) -> None:
        self.report.warn(self.node.line, self.path, message)

    def items(self) -> list[Place]:
        """Return the items of a list; none if the value is empty."""
        if self.node.value is None:
            return []
        if not isinstance(self.node.value, tuple):
            _wrong(self, "a list")
        return [Place(node, f"{self.path}[{i}]", self.report) for i, node in enumerate(self.node.value)]

    def entries(self) -> dict[str, Place]:
        """Return the entries of a mapping; none if the value is empty."""
        if self.node.value is None:
            return {}
        if not isinstance(self.node.value, dict):
            _wrong(self, "a mapping (key: value)")
        return {key: Place(node, self._below(key), self.report) for key, node in self.node.value.items()}

    def down(self, *keys: str) -> Place:
        """Return the place below these keys, as deep as they exist."""
        value = self.node.value
        if not keys or not isinstance(value, dict) or keys[0] not in value:
            return self
        return self.entries()[keys[0]].down(*keys[1:])

    def _below(self, key: str) -> str:
        shown = key if _SIMPLE_KEY.fullmatch(key) else repr(clip(key))
        return f"{self.path}.{shown}" if self.path else shown


class Section(Struct):
    """A mapping with known keys. Created by `section`, which reports keys that were never read."""

    place: Place
    entries: dict[str, Place]
    _known: list[str] = field(default_factory=list)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    @overload
    def get(self, key: str, reader: Callable[[Place], T]) -> T | None: ...

    @overload
    def get(self, key: str, reader: Callable[[Place], T], default: D) -> T | D: ...

    def get(self, key: str, reader: Callable[[Place], T], default: D | None = None) -> T | D | None:
        """Return the value of a key, or the default if it is omitted or wrong."""
        self._known.append(key)
        found = self.entries[key].read(reader) if key in self else None
        return default if found is None else found

    def need(self, key: str, reader: Callable[[Place], T], default: D) -> T | D:
        """Return the value like `get`, but report an omitted key as a problem."""
        if key not in self:
            self.place.problem(f"{key!r} is missing")
        return self.get(key, reader, default)

    def at(self, key: str) -> Place:
        """Return the place to report a problem with this key."""
        return self.entries.get(key, self.place)

    def report_unknown(self) -> None:
        for key, place in self.entries.items():
            if key not in self._known:
                has_many = place.report.has_many
                hint = "" if has_many else did_you_mean(clip(key), self._known)
                place.problem("unknown key", hint or f"known keys: {', '.join(sorted(self._known))}")


@contextmanager
def section(place: Place) -> Iterator[Section]:
    """Yield a mapping to read; afterwards report keys that were not read."""
    found = Section(place, place.entries())
    yield found
    found.report_unknown()


def text(place: Place) -> str:
    """Read text that is not blank. A number is a mistake, as only quotes make it text."""
    value = place.node.value
    if not isinstance(value, str):
        _wrong(place, "text", f'write it in quotes: "{place.node.text}"' if place.node.text else "")
    if not value.strip():
        raise UsageError("must not be blank")
    if "\0" in value:
        raise UsageError("contains a NUL character")
    return value


def written(place: Place) -> str:
    """Read a scalar as written: `8` and `1.10` are text, too."""
    if place.node.value is None or isinstance(place.node.value, tuple | dict):
        _wrong(place, "text")
    if "\0" in place.node.text:
        raise UsageError("contains a NUL character")
    return place.node.text


def boolean(place: Place) -> bool:
    """Read `true` or `false`, also in quotes, as attribute values are often quoted."""
    value = place.node.value
    if not isinstance(value, bool) and value not in ("true", "false"):
        _wrong(place, "true or false")
    return value in (True, "true")


def integer(least: int, most: int = 1_000_000_000) -> Callable[[Place], int]:
    """Return a reader of integers within bounds."""

    def read(place: Place) -> int:
        value = place.node.value
        if type(value) is not int:
            _wrong(place, "a whole number")
        if not least <= value <= most:
            raise UsageError(f"must be between {least} and {most}, not {clip(str(value))}")
        return value

    return read


def number(place: Place) -> float:
    value = place.node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        _wrong(place, "a number")
    try:
        return float(value)
    except OverflowError:
        _wrong(place, "a finite number")


def scalar(place: Place) -> str | int | float | bool:
    """Read any scalar with its type."""
    value = place.node.value
    if value is None or isinstance(value, tuple | dict):
        _wrong(place, "text or a number")
    return value


def matching(pattern: re.Pattern[str], what: str, hint: str = "") -> Callable[[Place], str]:
    """Return a reader of text that matches a pattern."""

    def read(place: Place) -> str:
        found = written(place)
        if pattern.fullmatch(found) is None:
            raise UsageError(f"{clip(found)!r} is not {what}", hint=hint)
        return found

    return read


def one_of(kind: type[E]) -> Callable[[Place], E]:
    """Return a reader of the members of an enumeration."""
    word = word_of([member.value for member in kind])
    return lambda place: kind(word(place))


def word_of(words: Sequence[str]) -> Callable[[Place], str]:
    """Return a reader of one of several words."""

    def read(place: Place) -> str:
        found = written(place)
        if found not in words:
            raise UsageError(
                f"must be {' or '.join(words)}, not {clip(found)!r}", hint=did_you_mean(clip(found), words)
            )
        return found

    return read


def list_of(reader: Callable[[Place], T]) -> Callable[[Place], tuple[T, ...]]:
    """Return a reader of lists; a wrong item is reported and omitted."""

    def read(place: Place) -> tuple[T, ...]:
        found = (item.read(reader) for item in place.items())
        return tuple(value for value in found if value is not None)

    return read


def mapping_of(reader: Callable[[Place], T]) -> Callable[[Place], dict[str, T]]:
    """Return a reader of mappings with any keys; a wrong entry is reported and omitted."""

    def read(place: Place) -> dict[str, T]:
        found = ((key, entry.read(reader)) for key, entry in place.entries().items())
        return {key: value for key, value in found if value is not None}

    return read


def _wrong(place: Place, wanted: str, hint: str = "") -> NoReturn:
    value = place.node.value
    if isinstance(value, tuple | dict):
        found = "a list" if isinstance(value, tuple) else "a mapping"
    else:
        found = repr(clip(place.node.text)) if place.node.text else "nothing"
    raise UsageError(f"must be {wanted}, not {found}", hint=hint)
