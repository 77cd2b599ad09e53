"""The rules on the text of a module: how long it is and how it is written."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.house.rules import Module

_IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore)(?P<rest>.*)")
_IGNORE_WELL = re.compile(
    r"(: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*|\[[a-z-]+(, ?[a-z-]+)*\])\s*(#|-|–|—)\s*\S.{4,}"
)


def long_functions(module: Module, most: int = 60) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > most:
                yield f"{module.name}:{node.lineno} {node.name} has {lines} lines, more than {most}"


def long_files(module: Module, most: int = 400) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > most:
        yield f"{module.name} has {lines} lines, more than {most}"


def empty_names(module: Module) -> Iterator[str]:
    for part in module.name.split("."):
        if part.strip("_") in ("util", "utils", "helper", "helpers", "common", "misc"):
            yield f"{module.name}: the name {part} says nothing of what is in it"


def bare_ignores(module: Module) -> Iterator[str]:
    """What is silenced says which rule, and why: `# noqa: S603 - the command is our own`."""
    if all(_IGNORE_WELL.match(match["rest"]) for match in _overlapping(_IGNORE, module.text)):
        return  # in most files: to cut them into tokens takes long
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type is not tokenize.COMMENT:
            continue
        match = _IGNORE.search(token.string)
        if match and not _IGNORE_WELL.match(match["rest"]):
            yield f"{module.name}:{token.start[0]} silences a check without its code and a reason"


def _overlapping(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    match = pattern.search(text)
    while match:
        yield match
        match = pattern.search(text, match.start() + 1)
