"""Convert the nodes of a file to values.

A reader is a function that converts a `Setting` to a value. It raises UsageError or ValueError for an invalid value. A
`Section` reads a mapping key by key. It reports invalid values and uses a default instead. A key that no reader has
read is reported as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import NoReturn, TypeVar, overload

from msgspec import Struct, field

from iris_cli.config.yaml_source import Node, Report
from iris_cli.core import clip, did_you_mean, pattern
from iris_cli.errors import UsageError

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)

NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SIMPLE_KEY = pattern(r"[A-Za-z0-9_.:/-]{1,80}")


class Setting(Struct, frozen=True):
    """A node of a file. `path`: position in the file, such as `slices[0].name`. `report`: the problems of the file."""

    node: Node
    path: str
    report: Report

    def read(self, reader: Callable[[Setting], T]) -> T | None:
        """Return the result of `reader`. If the reader fails, report the problem and return None."""
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

    def items(self) -> list[Setting]:
        """Return the items of a list; [] if the value is empty."""
        if self.node.value is None:
            return []
        if not isinstance(self.node.value, tuple):
            _raise_wrong_type(self, "a list")
        return [Setting(node, f"{self.path}[{i}]", self.report) for i, node in enumerate(self.node.value)]

    def entries(self) -> dict[str, Setting]:
        """Return the settings of a mapping by key; {} if the value is empty."""
        if self.node.value is None:
            return {}
        if not isinstance(self.node.value, dict):
            _raise_wrong_type(self, "a mapping (key: value)")
        return {key: Setting(node, self._path_of(key), self.report) for key, node in self.node.value.items()}

    def child(self, *keys: str) -> Setting:
        """Return the setting at the path `keys` below this setting. Stop before the first key that is missing."""
        value = self.node.value
        if not keys or not isinstance(value, dict) or keys[0] not in value:
            return self
        return self.entries()[keys[0]].child(*keys[1:])

    def _path_of(self, key: str) -> str:
        shown = key if _SIMPLE_KEY.fullmatch(key) else repr(clip(key))
        return f"{self.path}.{shown}" if self.path else shown


class Section(Struct):
    """A mapping that is read key by key. Create it with the function `section`."""

    setting: Setting
    entries: dict[str, Setting]
    _known: list[str] = field(default_factory=list)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    @overload
    def get(self, key: str, reader: Callable[[Setting], T]) -> T | None: ...

    @overload
    def get(self, key: str, reader: Callable[[Setting], T], default: D) -> T | D: ...

    def get(self, key: str, reader: Callable[[Setting], T], default: D | None = None) -> T | D | None:
        """Return the value of a key. Return the default if the key is omitted or its value is invalid."""
        self._known.append(key)
        setting = self.entries.get(key)
        found = None if setting is None else setting.read(reader)
        return default if found is None else found

    def require(self, key: str, reader: Callable[[Setting], T], default: D) -> T | D:
        """Return the value of a key like `get`, and report an omitted key as a problem."""
        if key not in self:
            self.setting.problem(f"{key!r} is missing")
        return self.get(key, reader, default)

    def setting_for(self, key: str) -> Setting:
        """Return the setting of a key, to report a problem. If the key is omitted, return the section's setting."""
        return self.entries.get(key, self.setting)

    def report_unknown(self) -> None:
        for key, setting in self.entries.items():
            if key not in self._known:
                has_many = setting.report.has_many
                hint = "" if has_many else did_you_mean(clip(key), self._known)
                setting.problem("unknown key", hint or f"known keys: {', '.join(sorted(self._known))}")


@contextmanager
def section(setting: Setting) -> Iterator[Section]:
    """Yield the mapping as a Section. At the end of the block, report the keys that were not read."""
    found = Section(setting, setting.entries())
    yield found
    found.report_unknown()


def text(setting: Setting) -> str:
    """Read text that is not blank. A number without quotes is an error."""
    value = setting.node.value
    if not isinstance(value, str):
        shown = setting.node.text
        _raise_wrong_type(setting, "text", f'write it in quotes: "{shown}"' if shown else "")
    if not value.strip():
        raise UsageError("must not be blank")
    if "\0" in value:
        raise UsageError("contains a NUL character")
    return value


def scalar_text(setting: Setting) -> str:
    """Read a scalar as written in the file: text, or a number such as `8` or `1.10`."""
    if setting.node.value is None or isinstance(setting.node.value, tuple | dict):
        _raise_wrong_type(setting, "text")
    if "\0" in setting.node.text:
        raise UsageError("contains a NUL character")
    return setting.node.text


def parsed(parse: Callable[[str], T]) -> Callable[[Setting], T]:
    """Return a reader that parses a scalar as written in the file."""
    return lambda setting: parse(scalar_text(setting))


def boolean(setting: Setting) -> bool:
    """Read `true` or `false`, with or without quotes."""
    value = setting.node.value
    if not isinstance(value, bool) and value not in ("true", "false"):
        _raise_wrong_type(setting, "true or false")
    return value in (True, "true")


def integer(minimum: int, maximum: int = 1_000_000_000) -> Callable[[Setting], int]:
    """Return a reader of integers between these bounds."""

    def read(setting: Setting) -> int:
        value = setting.node.value
        if type(value) is not int:
            _raise_wrong_type(setting, "a whole number")
        if not minimum <= value <= maximum:
            raise UsageError(f"must be between {minimum} and {maximum}, not {clip(str(value))}")
        return value

    return read


def number(setting: Setting) -> float:
    value = setting.node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        _raise_wrong_type(setting, "a number")
    try:
        return float(value)
    except OverflowError:
        _raise_wrong_type(setting, "a finite number")


def scalar(setting: Setting) -> str | int | float | bool:
    """Read any scalar with its type."""
    value = setting.node.value
    if value is None or isinstance(value, tuple | dict):
        _raise_wrong_type(setting, "text or a number")
    return value


def matching_text(pattern: re.Pattern[str], noun: str, hint: str = "") -> Callable[[Setting], str]:
    """Return a reader of text that matches a pattern. `noun`: a word for such text in the error, such as `a name`."""

    def read(setting: Setting) -> str:
        found = scalar_text(setting)
        if pattern.fullmatch(found) is None:
            raise UsageError(f"{clip(found)!r} is not {noun}", hint=hint)
        return found

    return read


def one_of(kind: type[E]) -> Callable[[Setting], E]:
    """Return a reader that accepts the values of an enumeration."""
    word = word_of([member.value for member in kind])
    return lambda setting: kind(word(setting))


def word_of(words: Sequence[str]) -> Callable[[Setting], str]:
    """Return a reader that accepts these words."""

    def read(setting: Setting) -> str:
        found = scalar_text(setting)
        if found not in words:
            raise UsageError(
                f"must be {' or '.join(words)}, not {clip(found)!r}", hint=did_you_mean(clip(found), words)
            )
        return found

    return read


def list_of(reader: Callable[[Setting], T]) -> Callable[[Setting], tuple[T, ...]]:
    """Return a reader of lists. It reports and omits invalid items."""

    def read(setting: Setting) -> tuple[T, ...]:
        found = (item.read(reader) for item in setting.items())
        return tuple(value for value in found if value is not None)

    return read


def mapping_of(reader: Callable[[Setting], T]) -> Callable[[Setting], dict[str, T]]:
    """Return a reader of mappings with any keys. It reports and omits invalid values."""
    return mapping_by_key(lambda _key, setting: reader(setting))


def mapping_by_key(reader: Callable[[str, Setting], T]) -> Callable[[Setting], dict[str, T]]:
    """Return a reader of mappings like `mapping_of`. `reader` also gets the key of the value."""

    def read(setting: Setting) -> dict[str, T]:
        found = ((key, entry.read(partial(reader, key))) for key, entry in setting.entries().items())
        return {key: value for key, value in found if value is not None}

    return read


def _raise_wrong_type(setting: Setting, wanted: str, hint: str = "") -> NoReturn:
    value = setting.node.value
    if isinstance(value, tuple | dict):
        found = "a list" if isinstance(value, tuple) else "a mapping"
    else:
        found = repr(clip(setting.node.text)) if setting.node.text else "nothing"
    raise UsageError(f"must be {wanted}, not {found}", hint=hint)
