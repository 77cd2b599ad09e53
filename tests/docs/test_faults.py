"""The table of faults is whole, and what it says to be tested is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"

IDS = {"A": 27, "B": 28, "C": 18, "D": 7, "L": 9, "S": 14, "I": 18}
"""How many rows each letter has."""

AUTOMATED = 60
"""Of the rows on dispatch, execution, gangs and security at least so many are shown by a test."""

NAMED = re.compile(r"`(tests/[^`]+)`")


def rows() -> dict[str, list[str]]:
    """The lines of the tables by their ids."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if row := re.match(r"\| ([A-Z]\d+) \| .* \|$", line):
            found.setdefault(row[1], []).append(line)
    return found


_MARK_OR_NAME = re.compile(r"^(?:(@pytest\.mark\.soak)\b|def (\w+))", re.MULTILINE)


@cache
def functions_of(file: str) -> Mapping[str, bool]:
    """The functions in a file by name, and whether only long runs take them; empty if there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return {}
    found: dict[str, bool] = {}
    marked = False
    for mark, name in _MARK_OR_NAME.findall(path.read_text("utf-8")):
        if name:
            found[name] = marked
        marked = bool(mark)
    return found


def exists(named: str) -> bool:
    """Whether `tests/…/test_x.py::test_y` or a transcript is there."""
    file, _, test = named.partition("::")
    if file.endswith(".txt"):
        return (ROOT / file).is_file() and not test
    return test.startswith("test_") and test in functions_of(file)


def is_long(named: str) -> bool:
    """Whether only long runs take this test."""
    file, _, test = named.partition("::")
    return not file.endswith(".txt") and functions_of(file)[test]


def test_every_fault_and_every_invariant_has_one_row() -> None:
    wanted = {f"{letter}{number}" for letter, count in IDS.items() for number in range(1, count + 1)}
    found = rows()
    assert set(found) == wanted
    assert [fault for fault, lines in found.items() if len(lines) > 1] == []


def test_every_row_names_tests_that_exist_or_explains_why_it_has_none() -> None:
    for fault, lines in rows().items():
        shown_by = lines[0].rsplit(" | ", 1)[1]
        named = NAMED.findall(shown_by)
        assert [each for each in named if not exists(each)] == [], fault
        assert not named or not all(map(is_long, named)), f"{fault} is shown by long runs alone"
        assert named or re.match(r"no test( yet)?: \S.{20,}", shown_by), (
            f"{fault} is shown by nothing: {shown_by}"
        )


def test_most_of_what_can_happen_on_the_way_to_and_on_a_worker_is_automated() -> None:
    shown = [fault for fault, (line,) in rows().items() if fault[0] in "BCDS" and NAMED.search(line)]
    assert len(shown) >= AUTOMATED


@pytest.mark.parametrize(
    "named",
    [
        "tests/docs/test_faults.py::test_that_is_not_there",
        "tests/docs/test_that_is_not_there.py::test_a_test_that_is_missing_is_noticed",
        "tests/docs/test_faults.py::exists",
        "tests/docs/test_faults.py",
        "tests/scenarios/that_is_not_there.txt",
    ],
)
def test_a_test_that_is_missing_is_noticed(named: str) -> None:
    assert exists("tests/docs/test_faults.py::test_a_test_that_is_missing_is_noticed")
    assert not exists(named)
