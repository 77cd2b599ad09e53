"""Read job scripts: programs with options of `iris launch` in their first lines.

    #!/bin/bash
    #IRIS --tpu v4-32 --workdir .
    #IRIS --timeout 12h

The lines that begin with `#IRIS` are directives. They must come before the first command of the script. A directive
has options of `iris launch` that are also fields of a job file. Paths are relative to the directory of the script.
"""

import os
import shlex
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from iris_cli.config.job_file import reader_of
from iris_cli.config.reading import Setting
from iris_cli.config.yaml_source import Node, Report
from iris_cli.core import JobRequest, clip, nearest, pattern, scalar_of
from iris_cli.core.model.job_fields import JOB_FIELDS, OPTIONS_OF_OTHER_TOOLS, JobField, Kind, request_of
from iris_cli.errors import UsageError

MAX_BYTES = 1 << 20
_DIRECTIVE = pattern(r"#IRIS(?:\s+(?P<options>.*))?")
_LIKE_DIRECTIVE = pattern(r"#\s*iris[:\s]\s*-.*|#IRIS-.*", 2)  # re.IGNORECASE; `##IRIS` is a comment
_REPEATABLE = frozenset(
    (Kind.CONSTRAINTS, Kind.TAINTS, Kind.JOBS, Kind.PORTS, Kind.SECRETS, Kind.VARIABLES, Kind.LABELS)
)
"""Kinds of options that may be repeated, as on the command line."""
_NUMBERS = frozenset((Kind.CORES, Kind.POSITIVE, Kind.COUNT))


def is_script(path: Path) -> bool:
    """Return whether the path is a file that begins with `#!`. Raises UsageError if the file can't be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(5).removeprefix(BOM_UTF8).startswith(b"#!")
    except OSError as error:
        raise UsageError(f"{clip(os.fspath(path))} can't be read: {error.strerror}") from error


def load_job_script(path: Path) -> JobRequest:
    """Read the directives of a script. Raises ConfigError with all problems of the script."""
    report = Report(path)
    found = _Directives(report)
    for line, words in _directive_lines(path, report):
        found.add_line(line, words)
    fields = found.values()
    report.raise_if_any()
    return request_of({**fields, "job_script": os.fspath(path.resolve())})


def _directive_lines(path: Path, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the words of each directive."""
    is_header = True
    for number, line in enumerate(_lines(path, report), start=1):
        directive = _DIRECTIVE.fullmatch(line.rstrip())
        if directive is None:
            is_header = is_header and line.lstrip()[:1] in ("", "#")
            if is_header and _LIKE_DIRECTIVE.fullmatch(line.rstrip()):
                report.add(
                    number, "", "a comment, not a directive", "write #IRIS --OPTION, or ##IRIS to turn it off"
                )
        elif not is_header:
            hint = "move it to the top of the script; indent text that only looks like a directive"
            report.add(number, "", "a directive after the first line of the program", hint)
        else:
            try:
                options = (directive["options"] or "").encode("utf-8", "surrogateescape").decode()
                yield number, list(takewhile(lambda word: not word.startswith("#"), shlex.split(options)))
            except UnicodeDecodeError:
                report.add(number, "", "it is not UTF-8 text")
            except ValueError as error:
                report.add(number, "", str(error).lower(), "close the quotes on the same line")


def _lines(path: Path, report: Report) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        report.add(1, "", f"it can't be read: {error.strerror}")
        return []
    first = data.partition(b"\n")[0]
    if len(data) > MAX_BYTES:
        report.add(1, "", f"it is larger than {MAX_BYTES >> 20} MiB", "ship programs and data with --workdir")
    elif first.startswith(BOM_UTF8):
        report.add(
            1, "", "it begins with a byte order mark, which no worker can run", "save it as UTF-8 without it"
        )
    elif first.endswith(b"\r"):
        report.add(1, "", "its lines end with CR LF, which no worker can run", f"dos2unix {clip(path.name)}")
    elif not first[2:].strip():
        report.add(1, "", "its first line names no program", "write #!/bin/sh")
    else:
        return data.decode("utf-8", "surrogateescape").split("\n")
    return []


class _Directives:
    """The values of the options in the directives, by field. Adds the problems of invalid options to the report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._nodes: dict[JobField, Node] = {}

    def add_line(self, line: int, words: Sequence[str]) -> None:
        rest = list(words)
        while rest:
            flag, sign, value = rest.pop(0).partition("=")
            row = _FIELDS.get(flag)
            if row is None:
                self._report.add(line, "", *_unknown_option(flag))
                return  # the next words may be values of the unknown option
            if row.kind is Kind.FLAG:
                if sign:
                    self._report.add(line, flag, "takes no value")
                self._add(line, row, Node(line, flag == _option_name(row), flag))
            elif sign or rest:
                self._add(line, row, self._node(line, row, value if sign else rest.pop(0)))
            else:
                self._report.add(line, flag, "has no value", f"write {flag} {row.metavar}")

    def _add(self, line: int, row: JobField, node: Node) -> None:
        existing = self._nodes.get(row)
        if existing is None:
            self._nodes[row] = node
        elif isinstance(existing.value, tuple) and isinstance(node.value, tuple):
            self._nodes[row] = Node(existing.line, (*existing.value, *node.value))
        elif isinstance(existing.value, dict) and isinstance(node.value, dict):
            self._nodes[row] = Node(existing.line, {**existing.value, **node.value})
        else:
            self._report.add(
                line, row.flags[0], f"is already set on line {existing.line}", "keep one of them"
            )

    def _node(self, line: int, row: JobField, text: str) -> Node:
        """Return the value of an option as a node, like the node of the field in a job file."""
        if row.kind in (Kind.VARIABLES, Kind.LABELS):
            return Node(line, self._pair(line, row, text))
        if row.kind is Kind.GROUP:
            return Node(line, {"group_by": Node(line, text, text)})
        if row.kind in _REPEATABLE:
            texts = text.split(",") if row.kind is Kind.PORTS else [text]
            return Node(line, tuple(Node(line, each, each) for each in texts))
        return Node(line, scalar_of(text) if row.kind in _NUMBERS else text, text)

    def _pair(self, line: int, row: JobField, text: str) -> dict[str, Node]:
        name, sign, value = text.partition("=")
        if not sign and row.kind is Kind.VARIABLES and name in os.environ:
            value, sign = os.environ[name], "="
        if not sign or not name:
            fault = "not set in this shell" if row.kind is Kind.VARIABLES else "is not NAME=VALUE"
            flag = row.flags[0]
            self._report.add(line, flag, f"{clip(text)!r}: {fault}", f"write {flag} NAME=VALUE")
            return {}
        return {name: Node(line, value, value)}

    def values(self) -> dict[str, Any]:
        """Return the values of the fields. Add the problems of invalid values to the report."""
        return {
            row.name: Setting(node, _option_name(row), self._report).read(reader_of(row))
            for row, node in self._nodes.items()
        }


def _option_name(row: JobField) -> str:
    """Return the name of the field's option. For a flag such as `--x/--no-x`, return the name that means true."""
    return row.flags[0].partition("/")[0]


_FIELDS = {
    flag: row for row in JOB_FIELDS if row.job_file for flags in row.flags for flag in flags.split("/")
}
"""The fields that a directive can set, by the names of their options."""


_COMMAND_OPTIONS = frozenset(("--wait", "--follow", "--dry-run", "--no-schedule", "--no-inherit-constraints"))
"""Options of `iris launch` that do not describe the job."""


def _unknown_option(flag: str) -> tuple[str, str]:
    """Return the message and the hint for a word that is not an option of a job."""
    shown = clip(flag)
    if not flag.strip("-") or not flag.startswith("-"):
        hint = "write #IRIS --OPTION VALUE; arguments: iris launch SCRIPT -- ARGUMENTS"
        return f"{shown!r} is not an option", hint
    if flag in _COMMAND_OPTIONS:
        return f"{flag} is not a directive", f"use it on the command line: iris launch {flag} SCRIPT"
    meant = [option for option, words in OPTIONS_OF_OTHER_TOOLS.items() if flag in words.split()]
    near = nearest(shown, (each for each in _FIELDS if each.startswith("--")))
    if not meant and near is not None:
        meant = [near]
    hint = "a directive takes the options of iris launch that describe a job"
    if meant:
        hint = f"did you mean {' or '.join(map(repr, meant))}?"
    return f"no such option: {shown}", hint
