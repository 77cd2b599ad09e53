"""Plain lines and tables, which are laid out without rich: to the byte what rich makes of them."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from iris_cli.render.layout import Table, Text
from iris_cli.render.tables import facts, fold, state, table, text

_WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12) | st.sampled_from(
    ["RUNNING", " ", "  two  blanks ", "[bold]", "\\[x]", "a\tb", "a\nb", "…", "日本", "x" * 90]
)
_TEXTS = st.builds(text, _WORDS, st.sampled_from(["", "bold red", "dim"])) | st.builds(state, _WORDS)
_LINES = _TEXTS | st.lists(_TEXTS | _WORDS, max_size=4).map(lambda parts: Text.assemble(*parts))
_HEADERS = ("JOB", "STATE", "AGE", "WHERE / WHY")
_ROWS = st.lists(st.tuples(*[_WORDS] * len(_HEADERS)), max_size=4)
_TABLES = st.builds(table, st.just(_HEADERS), _ROWS, only=st.just(()) | st.just(("JOB", "AGE")))
_FACTS = st.builds(facts, st.lists(st.tuples(_WORDS, _WORDS), max_size=4))


def by_rich(renderable: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@settings(max_examples=100, deadline=None)
@given(_LINES | _TABLES | _FACTS, st.integers(1, 100))
def test_what_is_laid_out_here_is_what_rich_makes_of_it(made: Text | Table, width: int) -> None:
    lines = made.lines(width)
    if lines is not None:
        assert "".join(f"{line}\n" for line in lines) == by_rich(made, width)


def test_an_ordinary_table_is_laid_out_here() -> None:
    made = table(_HEADERS, [("train", "RUNNING", "2h", "s[0-3]")])
    assert made.lines(40) == ["JOB    STATE    AGE  WHERE / WHY", "train  RUNNING   2h  s[0-3]     "]


def test_a_table_with_folded_names_is_laid_out_here() -> None:
    names = fold(f"train-{number}" for number in range(0, 20, 2))
    made = table(_HEADERS, [(names, "RUNNING", "2h", "s0")])
    assert made.lines(80) == [
        "JOB                     STATE    AGE  WHERE / WHY",
        "train-[0,2,4,6,8,10,…]  RUNNING   2h  s0         ",
    ]


@pytest.mark.parametrize("content", ["x" * 41, "日本", "a\tb", "\x1b[31m", "naïve"])
def test_what_needs_more_care_is_left_to_rich(content: str) -> None:
    for made in (Text(((content, ""),)), Table(rows=[[Text(((content, ""),))]], styles=[""])):
        assert made.lines(40) is None
