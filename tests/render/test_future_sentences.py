"""Every sentence about the future is known, and tested both where cycles come and where nobody runs them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.house.rules import ROOT

FUTURE = re.compile(
    r"(next|later|every) cycle|tr(ied|ies) again|\bwill\b|\bgo(es)? on\b|\bcontinues?\b|\bruns? on\b"
    r"|cooled down|healthy again|until somebody"
)
PLACES = ("render", "ops", "cli", "demo", "core/scheduling/explain/wording.py")

NEXT = "tests/render/test_next_cycle.py::"
LEFT = "tests/cli/test_leaving.py::test_an_interrupted_command_says_whether_the_job_goes_on"
TELL = (
    "tests/ops/notify/test_telling.py::"
    "test_a_server_that_fails_is_tried_again_later_and_meanwhile_status_and_doctor_say_so"
)

OF_CYCLES = {
    ("view.py", "starts in the next cycle"): f"{NEXT}test_why_says_where_what_fits_by_now_will_go",
    ("view.py", "ends in the next cycle"): f"{NEXT}test_why_says_when_the_next_cycle_will_give_up",
    ("inventory.py", "probed in the next cycle"): (
        f"{NEXT}test_a_worker_that_was_never_probed_says_when_it_will_be"
    ),
    ("inventory.py", "retried in the next cycle"): (f"{NEXT}test_why_doubts_a_placement_on_a_silent_worker"),
    ("inventory.py", "tried again in"): f"{NEXT}test_why_doubts_a_placement_on_a_silent_worker",
    ("channels.py", "tried again in"): TELL,
    ("channels.py", "the next cycle"): TELL,
    ("jobs.py", "retried in every cycle: iris workers"): (
        f"{NEXT}test_a_cancellation_that_is_not_confirmed_promises_only_cycles_that_come"
    ),
    ("jobs.py", "starts in the next cycle"): (
        f"{NEXT}test_a_job_that_was_only_submitted_promises_only_cycles_that_come"
    ),
    ("jobs.py", "starts in a later cycle"): (
        f"{NEXT}test_a_job_that_is_being_set_up_promises_only_cycles_that_come"
    ),
    ("jobs.py", "continues"): f"{NEXT}test_a_wait_whose_time_is_over_promises_only_cycles_that_come",
    ("jobs.py", "continue"): f"{NEXT}test_a_wait_whose_time_is_over_promises_only_cycles_that_come",
    ("wait.py", "goes on"): LEFT,
    ("wait.py", "go on"): LEFT,
    ("logs.py", "goes on: iris logs"): LEFT,
    ("wording.py", "has cooled down"): (
        f"{NEXT}test_a_change_that_only_a_cycle_can_see_is_promised_only_where_cycles_come"
    ),
    ("wording.py", ") is healthy again"): (
        f"{NEXT}test_a_change_that_only_a_cycle_can_see_is_promised_only_where_cycles_come"
    ),
}
"""Sentences about what cycles do, each with the test that has both cases."""

NOT_OF_CYCLES = {
    ("autoscale.py", "none of this will be done from here:"): "who owns the slices decides",
    ("cron.py", "it stops when you log out; to keep it: loginctl enable-linger"): "a timer",
    ("cycles.py", "--once and --interval exclude each other"): "two options",
    ("run.py", "Another gang. Its rank 2 fails as soon as the file `go` exists."): "the tour runs them",
    ("inside.py", "goes on"): "a task can't know who polls it",
    ("inside.py", "go on"): "a task can't know who polls it",
    ("context.py", "jobs stay pending until you run: iris watch --schedule, or iris cron install"): (
        "no cycles are running"
    ),
    (
        "log.py",
        "restore the newer copy, or accept the loss: iris log salvage --accept-loss",
    ): "a choice",
    ("wording.py", ": will never run"): "no cycle changes that",
    (
        "timer.py",
        "# Some workers did not answer: the next cycle asks them again.",
    ): "the timer's own",
    ("event_words.py", "will not be made"): "a decision in the log",
    ("event_words.py", "running without its wrapper"): "the present",
    ("interactive.py", "runs on"): "the present",
    ("task_rows.py", "running without its wrapper"): "the present",
    ("follow.py", "; it goes on from its beginning"): "the log that is being printed",
    ("host_checks.py", "iris schedule --once  # records it"): "a command to type",
    ("log_checks.py", "back; or go on without what is lost: iris log salvage --accept-loss"): "a choice",
    ("log_checks.py", "; or go on with what comes before it: iris log salvage  # then with --yes"): (
        "a choice"
    ),
    ("pull_attempt.py", "free some space, then pull again: it resumes"): "a command to type",
    ("jobs.py", "run on"): "the present",
    ("event_log.py", "the log goes on at seq"): "the number of the next record",
    ("probes.py", "will be over"): "recorded by the same command",
    (
        "slices.py",
        "run it there; if that state directory is gone for good: iris autoscale --adopt",
    ): "a choice",
}
"""Sentences that are true with and without cycles, each with the reason."""


def sentences() -> Iterator[tuple[str, str]]:
    """The name of the module and the text of each string with such words; of a long one the line that has them."""
    package = ROOT / "iris_cli"
    for place in PLACES:
        path = package / place
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for text in _strings(ast.parse(module.read_text(encoding="utf-8"))):
                for line in text.splitlines():
                    if FUTURE.search(line):
                        yield module.name, line.strip()


def _strings(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
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
