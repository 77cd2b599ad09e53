"""How the lines of many ranks look on one terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.ops.log_reading import LogLine
from iris_cli.ops.logs import TaskLog
from iris_cli.render import log_lines
from iris_cli.render.console import Output
from iris_cli.render.log_lines import merged, rank_prefix, readable

FOLDED = {
    "the same of all": ({0: "abc", 1: "abc", 2: "abc"}, "[0-2] a, [0-2] b, [0-2] c"),
    "one line more in between": ({0: "abc", 1: "abxc"}, "[0-1] a, [0-1] b, [1] x, [0-1] c"),
    "one began later": ({0: "bc", 1: "abc"}, "[1] a, [0-1] b, [0-1] c"),
    "one has not got so far": ({0: "abc", 1: "a", 2: "ab"}, "[0-2] a, [0,2] b, [0] c"),
    "nothing in common": ({0: "ab", 1: "xy"}, "[0] a, [0] b, [1] x, [1] y"),
    "the same in another order": ({0: "ab", 1: "ba"}, "[0] a, [0-1] b, [1] a"),
    "a line again and again": ({0: "aab", 1: "ab"}, "[0-1] a, [0] a, [0-1] b"),
    "some are silent": ({0: "", 1: "a", 5: "a"}, "[1,5] a"),
    "nobody says anything": ({0: "", 1: ""}, ""),
}


@pytest.mark.parametrize(("said", "shown"), FOLDED.values(), ids=FOLDED)
def test_equal_lines_of_ranks_fold(said: dict[int, str], shown: str) -> None:
    lines = {rank: list(text) for rank, text in said.items()}
    assert ", ".join(f"{rank_prefix(ranks)} {text}" for ranks, text in merged(lines)) == shown


@given(st.dictionaries(st.integers(0, 7), st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=8)))
def test_folding_keeps_each_ranks_lines_and_their_order(said: dict[int, list[str]]) -> None:
    shown = list(merged(said))
    for rank, texts in said.items():
        assert [text for ranks, text in shown if rank in ranks] == texts
    assert all(list(ranks) == sorted(set(ranks)) for ranks, _ in shown)


@pytest.mark.parametrize(
    ("ranks", "prefix"),
    [((3,), "[3]"), ((0, 1, 2, 3), "[0-3]"), ((0, 1, 2, 3, 7), "[0-3,7]"), ((9, 10, 12), "[9-10,12]")],
)
def test_ranks_are_written_as_ranges(ranks: Sequence[int], prefix: str) -> None:
    assert rank_prefix(ranks) == prefix


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.1", "loss 0.1"),
        ("\x1b[32mgreen\x1b[0m", "green"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\tb", "a       b"),
        ("[/] [bold]", "[/] [bold]"),
        ("\u202eevil", "\\u202eevil"),
    ],
)
def test_hostile_text_is_harmless(text: str, shown: str) -> None:
    assert readable(text) == shown


def line(rank: int, text: str, stream: str = "out") -> LogLine:
    return LogLine(AttemptId(TaskId(JobId("train"), rank), 0), stream, text)


def log_of(rank: int, *texts: str, note: str = "") -> TaskLog:
    lines = tuple(line(rank, text) for text in texts)
    return TaskLog(task=TaskId(JobId("train"), rank), state="RUNNING", attempt=0, lines=lines, note=note)


def test_a_single_task_has_no_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show(Output(), [log_of(2, "hello")])
    assert capsys.readouterr().out == "hello\n"


def test_without_folding_each_rank_speaks_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show(Output(), [log_of(0, "a", "b"), log_of(1, "a")], folded=False)
    assert capsys.readouterr().out == "[0] a\n[0] b\n[1] a\n"


def test_a_long_line_of_a_program_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show(Output(), [log_of(0, "x" * 5000), log_of(1)])
    assert capsys.readouterr().out == f"[0] {'x' * 5000}\n"


def test_standard_error_comes_after_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    task = TaskLog(
        task=TaskId(JobId("train"), 0), state="RUNNING", lines=(line(0, "oops", "err"), line(0, "fine"))
    )
    log_lines.show(Output(), [task])
    assert capsys.readouterr().out.splitlines() == ["fine", "oops"]


def test_what_is_the_same_of_many_tasks_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show(Output(), [log_of(rank, note="has not started: chips: busy") for rank in range(4)])
    assert capsys.readouterr().err == "train/task-[0-3]: has not started: chips: busy\n"
