"""Every sentence about the future is known, and tested both where cycles come and where nobody runs them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.house.rules import ROOT, Module

FUTURE = re.compile(
    r"(next|later|every) cycle|retried in|polled again in|\bwill\b|\bgo(es)? on\b|\bcontinues?\b|\bruns? on\b"
    r"|cool-down|healthy again|until somebody"
)
_BETWEEN_PIECES = re.compile(r"[\"']\s*f?[\"']")
"""Where a string continues in another literal."""
EXPLAIN = "core/scheduling/explain"
PLACES = ("render", "ops", "cli", "demo", f"{EXPLAIN}/wording.py", f"{EXPLAIN}/change.py")

NEXT = "tests/render/test_next_cycle.py::"
LEFT = "tests/cli/test_leaving.py::test_an_interrupted_command_says_whether_the_job_goes_on"
TELL = (
    "tests/ops/notify/test_telling.py::"
    "test_a_server_that_fails_is_tried_again_later_and_meanwhile_status_and_doctor_say_so"
)

OF_CYCLES = {
    ("view.py", "starts in the next cycle"): f"{NEXT}test_why_names_the_worker_for_a_task_that_fits_now",
    ("view.py", "ends in the next cycle"): f"{NEXT}test_why_says_when_the_next_cycle_will_give_up",
    ("inventory.py", "will be probed in the next cycle"): (
        f"{NEXT}test_a_worker_that_was_never_probed_says_when_it_will_be"
    ),
    ("inventory.py", "polled again in the next cycle"): (
        f"{NEXT}test_why_doubts_a_placement_on_a_silent_worker"
    ),
    ("inventory.py", "polled again in"): f"{NEXT}test_why_doubts_a_placement_on_a_silent_worker",
    ("view.py", "retried in"): TELL,
    ("view.py", "the next cycle"): TELL,
    ("jobs.py", "retried in every cycle: iris workers"): (
        f"{NEXT}test_a_cancellation_that_is_not_confirmed_promises_only_cycles_that_come"
    ),
    ("jobs.py", "starts in a later cycle"): (
        f"{NEXT}test_a_job_that_is_being_set_up_promises_only_cycles_that_come"
    ),
    ("jobs.py", "continues"): f"{NEXT}test_a_wait_whose_time_is_over_promises_only_cycles_that_come",
    ("jobs.py", "continue"): f"{NEXT}test_a_wait_whose_time_is_over_promises_only_cycles_that_come",
    ("logs.py", "continues: iris logs"): LEFT,
    ("change.py", ", after the cool-down of"): (
        f"{NEXT}test_a_change_that_only_a_cycle_can_see_is_promised_only_where_cycles_come"
    ),
    ("change.py", ") is healthy again"): (
        f"{NEXT}test_a_change_that_only_a_cycle_can_see_is_promised_only_where_cycles_come"
    ),
}
"""Sentences about what cycles do, each with the test that has both cases."""

NOT_OF_CYCLES = {
    ("wording.py", "; will never run"): "no cycle changes that",
    (
        "cron.py",
        "# Some workers did not answer: the next cycle asks them again.",
    ): "the timer's own",
}
"""Sentences that are true with and without cycles, each with the reason."""


def sentences() -> Iterator[tuple[str, str]]:
    """The name of the module and the text of each string with such words; of a long one the line that has them."""
    package = ROOT / "iris_cli"
    for place in PLACES:
        path = package / place
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            source = module.read_text("utf-8")
            if not FUTURE.search(_BETWEEN_PIECES.sub("", source)):
                continue  # most modules: to parse them takes long
            for text in _strings(Module(module.stem, source)):
                for line in text.splitlines():
                    if FUTURE.search(line):
                        yield module.name, line.strip()


def _strings(module: Module) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    docs = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_every_sentence_about_the_future_is_in_one_of_the_tables() -> None:
    known = OF_CYCLES.keys() | NOT_OF_CYCLES.keys()
    found = set(sentences())
    assert found - known == set(), "name the test that has both cases, or say why it speaks of no cycle"
    assert known - found == set(), "no longer there"
    assert not OF_CYCLES.keys() & NOT_OF_CYCLES.keys()


@pytest.mark.parametrize("test", sorted(set(OF_CYCLES.values())))
def test_the_test_of_a_sentence_exists_and_has_both_cases(test: str) -> None:
    """Of the other case it has the words."""
    path, _, name = test.partition("::")
    assert "no cycles are running" in _source(path, name) or "HINT" in _source(path, name)


@cache
def _source(path: str, name: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    [found] = [
        each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == name
    ]
    first = min((each.lineno for each in found.decorator_list), default=found.lineno)
    return "\n".join(text.splitlines()[first - 1 : found.end_lineno])
