"""Read a strict subset of YAML: mappings, lists and scalars with their line numbers.

Tags, anchors, aliases, merge keys, duplicate keys and several documents are rejected. Size, depth and number of nodes
are limited. An unquoted scalar is text unless it is `true`, `false`, `null` or a decimal number. For example, `no`,
`on`, `017`, `12:30:45` and dates are text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from msgspec import Struct, field

from iris_cli.core import clip, pattern, scalar_of
from iris_cli.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
MAX_DEPTH = 40

Scalar = str | int | float | bool | None

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may be built without the loader in C
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_CONTROL = pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_RANGE_IN_FLOW = pattern(r"\[[^\"'\]]*\[\d+-\d+\]")


class Node(Struct, frozen=True):
    """A value. `line`: the line of the value, or of its key in a mapping. `text`: a scalar as written in the file.

    `start` and `end`: the positions of its text in the file, without a comment after it. `column`: the column of the
    first character, or of the dashes of a block list. `flow`: true if the value is written in braces or brackets. An
    empty value is at the position after the colon of its key.
    """

    line: int
    value: Scalar | tuple[Node, ...] | dict[str, Node]
    text: str = ""
    start: int = 0
    end: int = 0
    column: int = 0
    flow: bool = False

    @property
    def entries(self) -> dict[str, Node]:
        """The values of a mapping by key; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple[Node, ...]:
        """The items of a list; empty for other values."""
        return self.value if isinstance(self.value, tuple) else ()

    def text_of(self, key: str) -> str:
        """Return the scalar of this mapping's key; "" if the key is missing or its value is no scalar."""
        node = self.entries.get(key)
        return node.text if node is not None else ""


class _RejectedError(Exception):
    def __init__(self, line: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.hint = hint


def read_yaml(path: Path, report: Report, data: bytes | None = None) -> Node | None:
    """Return the root of a YAML file, or of its new content `data`; None if invalid. Add problems to the report."""
    try:
        text = _decode(_read(path) if data is None else data)
        return _Builder(text, report).document()
    except _RejectedError as error:
        report.add(error.line, "", error.message, error.hint)
        return None


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise _RejectedError(1, "no such file" if not path.exists() else "not a regular file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _RejectedError(1, f"can't be read: {error.strerror}") from error


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _RejectedError(1, f"larger than {MAX_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _RejectedError(1 + data.count(b"\n", 0, error.start), "not UTF-8 text") from error
    if found := _CONTROL.search(text):
        line = 1 + text.count("\n", 0, found.start())
        raise _RejectedError(line, f"control character (U+{ord(found[0]):04X})")
    return text


class _Builder:
    """Builds nodes from the events of the YAML parser, and checks the limits."""

    def __init__(self, text: str, report: Report) -> None:
        self._text = text
        self._report = report
        self._nodes = 0
        self._events = self._parse()

    def document(self) -> Node:
        next(self._events)  # the start of the stream
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise _RejectedError(1, "the file is empty")
        root = self._node(next(self._events), 1)
        next(self._events)  # the end of the document
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise _RejectedError(
                _line(after), "a second document starts on this line", "keep one document per file"
            )
        return root

    def _parse(self) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(self._text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise _RejectedError(line, f"not valid YAML: {error.problem}", self._hint(line)) from error
        except yaml.YAMLError as error:
            raise _RejectedError(1, "not valid YAML") from error

    def _hint(self, line: int) -> str:
        """Return a hint if the text near the line has one of two frequent mistakes; otherwise ''."""
        near = self._text.split("\n")[max(0, line - 2) : line]
        if any(each.startswith("\t") or each.lstrip(" ").startswith("\t") for each in near):
            return "indent with spaces, not with tabs"
        if any(_RANGE_IN_FLOW.search(each[:1000]) for each in near):
            return "put a range of hosts in quotes"
        return ""

    def _node(self, event: yaml.Event, depth: int, empty_position: int = 0) -> Node:
        """Parse the value that begins with `event`. `empty_position`: the position of the value if it is empty."""
        self._reject_unsupported(event)
        self._nodes += 1
        if depth > MAX_DEPTH:
            raise _RejectedError(_line(event), f"nested deeper than {MAX_DEPTH} levels")
        if self._nodes > MAX_NODES:
            raise _RejectedError(_line(event), f"more than {MAX_NODES} values")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(event, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        return self._scalar(event, empty_position)

    def _reject_unsupported(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise _RejectedError(_line(event), "aliases are not supported", "write the value out")
        if getattr(event, "anchor", None) is not None:
            raise _RejectedError(_line(event), "anchors are not supported", "write the value out")
        if getattr(event, "tag", None) is not None:
            raise _RejectedError(
                _line(event), "tags are not supported", "put text that begins with '!' in quotes"
            )

    def _sequence(self, start: yaml.Event, depth: int) -> Node:
        items: list[Node] = []
        end = _span(start)[0]
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1, end))
            end = items[-1].end
        return _collection(start, event, tuple(items), end)

    def _mapping(self, start: yaml.Event, depth: int) -> Node:
        entries: dict[str, Node] = {}
        end = _span(start)[0]
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, key_end = self._key(event, depth, end)
            value = self._node(next(self._events), depth + 1, self._text.find(":", key_end) + 1)
            end = value.end
            if key in entries:
                first = entries[key].line
                self._report.add(_line(event), "", f"{clip(key)!r} is set twice, first on line {first}")
            else:
                entries[key] = Node(
                    _line(event), value.value, value.text, value.start, end, value.column, value.flow
                )
        return _collection(start, event, entries, end)

    def _key(self, event: yaml.Event, depth: int, empty_position: int) -> tuple[str, int]:
        """Return a key and the position of its end."""
        if not isinstance(event, yaml.ScalarEvent):
            raise _RejectedError(_line(event), "a key must be plain text")
        key = self._node(event, depth, empty_position)
        if key.text == "<<":
            raise _RejectedError(_line(event), "merge keys are not supported", "write the values out")
        return key.text, key.end

    def _scalar(self, event: yaml.Event, empty_position: int) -> Node:
        assert isinstance(event, yaml.ScalarEvent)
        text: str = event.value
        value: Scalar = text
        if not event.style:  # None or "" for an unquoted scalar, depending on the parser
            value = _WORDS[text] if text in _WORDS else scalar_of(text)
        start, end, column = _span(event)
        if start == end:
            start = end = empty_position
        elif event.style in ("|", ">"):  # the parser includes empty lines after the text
            end = start + len(self._text[start:end].rstrip())
        return Node(_line(event), value, text, start, end, column)


def _collection(
    start: yaml.Event, last: yaml.Event, value: tuple[Node, ...] | dict[str, Node], end: int
) -> Node:
    """Return a list or mapping from its first and last event. `end`: the end of its last value."""
    assert isinstance(start, yaml.CollectionStartEvent)
    position, _, column = _span(start)
    flow = bool(start.flow_style)
    return Node(_line(start), value, "", position, _span(last)[1] if flow else end, column, flow)


def _span(event: yaml.Event) -> tuple[int, int, int]:
    assert event.start_mark is not None
    assert event.end_mark is not None
    return event.start_mark.index, event.end_mark.index, event.start_mark.column


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


_MAX_PROBLEMS = 100


class Problem(Struct, frozen=True):
    """One problem. `path`: position in the file, such as `slices[0].hosts`; "" means the whole file."""

    line: int
    path: str
    message: str
    hint: str = ""


class Report(Struct):
    """The problems of one file, in the order in which they were found."""

    file: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, line: int, path: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(line, path, message, hint))

    def warn(self, line: int, path: str, message: str) -> None:
        self.warnings.append(self._text(Problem(line, path, message)))

    @property
    def has_many(self) -> bool:
        """True if the maximum number of shown problems is reached."""
        return len(self.problems) >= _MAX_PROBLEMS

    def raise_if_any(self) -> None:
        """Raise a ConfigError with the problems by line, if there are any."""
        if not self.problems:
            return
        ordered = sorted(self.problems, key=lambda problem: problem.line)
        lines = [self._text(problem) for problem in ordered[:_MAX_PROBLEMS]]
        if len(ordered) > _MAX_PROBLEMS:
            lines.append(f"{self.file}: and {len(ordered) - _MAX_PROBLEMS} more")
        count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
        raise ConfigError(f"{self.file} has {count}", problems=tuple(lines))

    def _text(self, problem: Problem) -> str:
        path = f" {problem.path}:" if problem.path else ""
        hint = f" ({problem.hint})" if problem.hint else ""
        return f"{self.file}:{problem.line}:{path} {problem.message}{hint}"
