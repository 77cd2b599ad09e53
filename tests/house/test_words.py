"""The strings of iris are plain: none has a turn of the short list of words that readers stumbled over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.rules import ROOT

WORDS = (
    *("whoever", "anew", "in vain", "is none", "nobody", "somebody", "hither", "as it were", "meanwhile"),
    *("for want of", "should it", "be that", "what is told", "looked after", "goes again", "by then"),
    *("leave out", "left out", "mend", "mended", "can't be meant", "says nothing of", "goes on", "go on"),
    *("was over", "is over", "be over", "on its way", "stays as it is", "is there already", "is not told"),
)
"""Whole words, in any case."""

ALLOWED = {
    "its lease ended: nobody polled it",  # the words of old logs, by which a known cause is found
}
"""Strings that have such a word on purpose."""

_TURN = re.compile(rf"\b({'|'.join(map(re.escape, WORDS))})\b", re.IGNORECASE)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Each string that is not a docstring or a text below a name, by its line; pieces of f-strings one by one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_no_string_has_a_turn_that_readers_stumble_over() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]!r}"
        for path in sorted((ROOT / "iris_cli").rglob("*.py"))
        for line, text in strings(path)
        if text not in ALLOWED and _TURN.search(text)
    ]
    assert found == []


def test_each_exception_is_still_needed() -> None:
    texts = {text for path in (ROOT / "iris_cli").rglob("*.py") for _, text in strings(path)}
    assert texts >= ALLOWED
