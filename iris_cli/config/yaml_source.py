"""A strict subset of YAML: mappings, lists and scalars with their line numbers.

No tags, anchors, aliases, merge keys or duplicate keys, one document, and limits on size, depth and number of nodes. An
unquoted scalar is text unless it reads as `true`, `false`, `null` or a decimal number: `no`, `on`, `017`, `12:30:45`
and dates stay text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from msgspec import Struct, field

from iris_cli.core import clip, pattern, scalar_of
from iris_cli.errors import ConfigError

MOST_BYTES = 1 << 20
MOST_NODES = 100_000
DEEPEST = 40

Scalar = str | int | float | bool | None

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one if PyYAML was built with it
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_CONTROL = pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_RANGE_IN_FLOW = pattern(r"\[[^\"'\]]*\[\d+-\d+\]")


class Node(Struct, frozen=True):
    """A value and its line (that of its key, if any). `text` is a scalar as written."""

    line: int
    value: Scalar | tuple[Node, ...] | dict[str, Node]
    text: str = ""


class _Refused(Exception):  # noqa: N818 - internal: never leaves this module
    def __init__(self, line: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.hint = hint


def read_yaml(path: Path, report: Report, data: bytes | None = None) -> Node | None:
    """Return the root of a YAML file, None if it can't be read. Problems, such as duplicate keys, go into the report.

    `data` replaces the content of the file.
    """
    try:
        text = _decode(_read(path) if data is None else _short_enough(data))
        return _Builder(text, report).document()
    except _Refused as refused:
        report.add(refused.line, "", refused.message, refused.hint)
        return None


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise _Refused(1, "no such file" if not path.exists() else "not a regular file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _Refused(1, f"can't be read: {error.strerror}") from error
    return _short_enough(data)


def _short_enough(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise _Refused(1, f"larger than {MOST_BYTES >> 20} MiB")
    return data


def _decode(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Refused(1 + data.count(b"\n", 0, error.start), "not UTF-8 text") from error
    if odd := _CONTROL.search(text):
        line = 1 + text.count("\n", 0, odd.start())
        raise _Refused(line, f"control character (U+{ord(odd[0]):04X})")
    return text


def parser_events(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events with their positions. Raises yaml.YAMLError."""
    yield from yaml.parse(text, Loader=_LOADER)


class _Builder:
    """Builds nodes from parser events one at a time, so every limit is checked in time."""

    def __init__(self, text: str, report: Report) -> None:
        self._text = text
        self._report = report
        self._nodes = 0
        self._events = self._parse()

    def document(self) -> Node:
        next(self._events)  # the start of the stream
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise _Refused(1, "the file is empty")
        root = self._node(next(self._events), 1)
        next(self._events)  # the end of the document
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise _Refused(
                _line(after), "a second document starts on this line", "keep one document per file"
            )
        return root

    def _parse(self) -> Iterator[yaml.Event]:
        try:
            yield from parser_events(self._text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise _Refused(line, f"not valid YAML: {error.problem}", self._hint(line)) from error
        except yaml.YAMLError as error:
            raise _Refused(1, "not valid YAML") from error

    def _hint(self, line: int) -> str:
        """Return a hint for the two mistakes behind most syntax errors in these files."""
        near = self._text.split("\n")[max(0, line - 2) : line]
        if any(each.startswith("\t") or each.lstrip(" ").startswith("\t") for each in near):
            return "indent with spaces, not with tabs"
        if any(_RANGE_IN_FLOW.search(each[:1000]) for each in near):
            return "put a range of hosts in quotes"
        return ""

    def _node(self, event: yaml.Event, depth: int) -> Node:
        self._refuse_oddities(event)
        self._nodes += 1
        if depth > DEEPEST:
            raise _Refused(_line(event), f"nested deeper than {DEEPEST} levels")
        if self._nodes > MOST_NODES:
            raise _Refused(_line(event), f"more than {MOST_NODES} values")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        return _scalar(event)

    def _refuse_oddities(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(_line(event), "aliases are not supported", "write the value out")
        if getattr(event, "anchor", None) is not None:
            raise _Refused(_line(event), "anchors are not supported", "write the value out")
        if getattr(event, "tag", None) is not None:
            raise _Refused(_line(event), "tags are not supported", "put text that begins with '!' in quotes")

    def _sequence(self, start: yaml.Event, depth: int) -> Node:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Node(_line(start), tuple(items))

    def _mapping(self, start: yaml.Event, depth: int) -> Node:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, depth)
            value = self._node(next(self._events), depth + 1)
            if key in entries:
                first = entries[key].line
                self._report.add(_line(event), "", f"{clip(key)!r} is set twice, first on line {first}")
            else:
                entries[key] = Node(_line(event), value.value, value.text)
        return Node(_line(start), entries)

    def _key(self, event: yaml.Event, depth: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise _Refused(_line(event), "a key must be plain text")
        key = self._node(event, depth).text
        if key == "<<":
            raise _Refused(_line(event), "merge keys are not supported", "write the values out")
        return key


def _scalar(event: yaml.Event) -> Node:
    assert isinstance(event, yaml.ScalarEvent)
    text: str = event.value
    if event.style:  # None or "" for a plain scalar, depending on the parser
        return Node(_line(event), text, text)
    return Node(_line(event), _WORDS[text] if text in _WORDS else scalar_of(text), text)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


# All problems of a file, collected and reported together.


_MOST = 100


class Problem(Struct, frozen=True):
    """One problem. `path` is its place in the file, such as `slices[0].hosts`; "" is the whole file."""

    line: int
    path: str
    message: str
    hint: str = ""


class Report(Struct):
    """The problems of one file, in the order they were found."""

    file: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, line: int, path: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(line, path, message, hint))

    def warn(self, line: int, path: str, message: str) -> None:
        self.warnings.append(self._text(Problem(line, path, message)))

    @property
    def has_many(self) -> bool:
        """True if there are so many problems that hints would only cost time."""
        return len(self.problems) >= _MOST

    def raise_if_any(self) -> None:
        """Raise a ConfigError with all problems by line, if there are any."""
        if not self.problems:
            return
        ordered = sorted(self.problems, key=lambda problem: problem.line)
        lines = [self._text(problem) for problem in ordered[:_MOST]]
        if len(ordered) > _MOST:
            lines.append(f"{self.file}: and {len(ordered) - _MOST} more")
        count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
        raise ConfigError(f"{self.file} has {count}", problems=tuple(lines))

    def _text(self, problem: Problem) -> str:
        path = f" {problem.path}:" if problem.path else ""
        hint = f" ({problem.hint})" if problem.hint else ""
        return f"{self.file}:{problem.line}:{path} {problem.message}{hint}"
