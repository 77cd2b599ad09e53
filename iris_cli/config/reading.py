"""From nodes to values: a section is asked key by key, and what was never asked for is unknown.

A reader is a function that makes a value of a `Place`. It raises UsageError or ValueError for a value that
can't be; the section that asked puts this into the report and goes on with the default.
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
    """A node, where it stands, and where its problems go."""

    node: Node
    path: str
    report: Report

    def read(self, reader: Callable[[Place], T]) -> T | None:
        """What the reader makes of it, or None if that is a problem."""
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
        """The items of a list; nothing at all is an empty one."""
        if self.node.value is None:
            return []
        if not isinstance(self.node.value, tuple):
            _wrong(self, "a list")
        return [Place(node, f"{self.path}[{i}]", self.report) for i, node in enumerate(self.node.value)]

    def entries(self) -> dict[str, Place]:
        """The entries of a mapping; nothing at all is an empty one."""
        if self.node.value is None:
            return {}
        if not isinstance(self.node.value, dict):
            _wrong(self, "a mapping (key: value)")
        return {key: Place(node, self._below(key), self.report) for key, node in self.node.value.items()}

    def down(self, *keys: str) -> Place:
        """The place below these keys, as far as they are there."""
        value = self.node.value
        if not keys or not isinstance(value, dict) or keys[0] not in value:
            return self
        return self.entries()[keys[0]].down(*keys[1:])

    def _below(self, key: str) -> str:
        shown = key if _SIMPLE_KEY.fullmatch(key) else repr(clip(key))
        return f"{self.path}.{shown}" if self.path else shown


class Section(Struct):
    """A mapping with known keys. Made by `section`, which reports the keys that nobody asked for."""

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
        """The value of a key, or the default if it is left out or wrong."""
        self._known.append(key)
        found = self.entries[key].read(reader) if key in self else None
        return default if found is None else found

    def need(self, key: str, reader: Callable[[Place], T], default: D) -> T | D:
        """Like `get`, but leaving it out is a problem."""
        if key not in self:
            self.place.problem(f"{key!r} is missing")
        return self.get(key, reader, default)

    def at(self, key: str) -> Place:
        """Where a problem with this key is to be reported."""
        return self.entries.get(key, self.place)

    def report_unknown(self) -> None:
        for key, place in self.entries.items():
            if key not in self._known:
                crowded = place.report.crowded
                hint = "" if crowded else did_you_mean(clip(key), self._known)
                place.problem("unknown key", hint or f"known keys: {', '.join(sorted(self._known))}")


@contextmanager
def section(place: Place) -> Iterator[Section]:
    """Read a mapping; at the end the keys that were not asked for are reported."""
    found = Section(place, place.entries())
    yield found
    found.report_unknown()


def text(place: Place) -> str:
    """Text that is not blank. A number is a mistake, as quotes decide what it means."""
    value = place.node.value
    if not isinstance(value, str):
        _wrong(place, "text", f'write it in quotes: "{place.node.text}"' if place.node.text else "")
    if not value.strip():
        raise UsageError("must not be blank")
    if "\0" in value:
        raise UsageError("contains a NUL character")
    return value


def written(place: Place) -> str:
    """A scalar as it was written: `8` and `1.10` are text here too."""
    if place.node.value is None or isinstance(place.node.value, tuple | dict):
        _wrong(place, "text")
    if "\0" in place.node.text:
        raise UsageError("contains a NUL character")
    return place.node.text


def boolean(place: Place) -> bool:
    """`true` or `false`; in quotes too, as attribute values are often written so."""
    value = place.node.value
    if not isinstance(value, bool) and value not in ("true", "false"):
        _wrong(place, "true or false")
    return value in (True, "true")


def integer(least: int, most: int = 1_000_000_000) -> Callable[[Place], int]:
    """A reader of whole numbers within bounds."""

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
    """Any scalar, with its type."""
    value = place.node.value
    if value is None or isinstance(value, tuple | dict):
        _wrong(place, "text or a number")
    return value


def matching(pattern: re.Pattern[str], what: str, hint: str = "") -> Callable[[Place], str]:
    """A reader of text of one form."""

    def read(place: Place) -> str:
        found = written(place)
        if pattern.fullmatch(found) is None:
            raise UsageError(f"{clip(found)!r} is not {what}", hint=hint)
        return found

    return read


def one_of(kind: type[E]) -> Callable[[Place], E]:
    """A reader of the members of an enumeration."""
    word = word_of([member.value for member in kind])
    return lambda place: kind(word(place))


def word_of(words: Sequence[str]) -> Callable[[Place], str]:
    """A reader of one of a few words."""

    def read(place: Place) -> str:
        found = written(place)
        if found not in words:
            raise UsageError(
                f"must be {' or '.join(words)}, not {clip(found)!r}", hint=did_you_mean(clip(found), words)
            )
        return found

    return read


def list_of(reader: Callable[[Place], T]) -> Callable[[Place], tuple[T, ...]]:
    """A reader of lists; a wrong item is reported and left out."""

    def read(place: Place) -> tuple[T, ...]:
        found = (item.read(reader) for item in place.items())
        return tuple(value for value in found if value is not None)

    return read


def mapping_of(reader: Callable[[Place], T]) -> Callable[[Place], dict[str, T]]:
    """A reader of mappings with free keys; a wrong entry is reported and left out."""

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
