"""The strings of iris are plain: none has a turn of the short list of words that readers stumbled over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.rules import Module, house

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


def strings(module: Module) -> Iterator[tuple[int, str]]:
    """Each string that is not a docstring or a text below a name, by its line; pieces of f-strings one by one."""
    documentation = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_no_string_has_a_turn_that_readers_stumble_over_and_each_exception_is_still_needed() -> None:
    turns = [
        (f"{module.name}:{line}: {text[:80]!r}", text)
        for module in house()
        for line, text in strings(module)
        if _TURN.search(text)
    ]
    assert [found for found, text in turns if text not in ALLOWED] == []
    assert {text for _, text in turns} >= ALLOWED
