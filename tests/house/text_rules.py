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
    if not _has_room_for_a_longer_function(module.text, most):
        return  # most files: to parse them takes long
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > most:
                yield f"{module.name}:{node.lineno} {node.name} has {lines} lines, more than {most}"


def _has_room_for_a_longer_function(text: str, most: int) -> bool:
    """Return whether it is further than that from a `def` to the next head of its depth, or to the end."""
    lines = text.splitlines()
    heads: list[tuple[int, int]] = []
    in_string = False
    for number, line in enumerate(lines):
        words = line.lstrip()
        if words.startswith(("def ", "async def ", "class ", "@")) and not in_string:
            heads.append((number, len(line) - len(words)))
        in_string ^= line.count('"""') % 2 == 1
    heads.append((len(lines), 0))
    return any(
        next(end for end, other in heads[place + 1 :] if other <= depth) - number > most
        for place, (number, depth) in enumerate(heads[:-1])
        if "def " in lines[number]
    )


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
