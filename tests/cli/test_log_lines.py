"""How the lines of many ranks look on one terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.ops.logs.follow import Step
from iris_cli.ops.logs.log_reading import LogLine, LogText
from iris_cli.ops.logs.logs import TaskLog
from iris_cli.render.console import Output
from iris_cli.render.layout import clean
from iris_cli.render.logs import log_lines
from iris_cli.render.logs.log_fold import Block, LiveFold, merge_lines
from iris_cli.render.logs.log_lines import make_readable, rank_prefix
from tests.support.json_output import checked

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


Lines = dict[int, list[str]]
SAID = st.dictionaries(st.integers(0, 7), st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=8))
"""What each rank said."""


def as_texts(said: Mapping[int, Sequence[str]]) -> dict[int, str]:
    return {rank: "".join(f"{line}\n" for line in lines) for rank, lines in said.items()}


def one_by_one(blocks: Iterable[Block]) -> list[tuple[tuple[int, ...], str]]:
    return [(ranks, line) for ranks, text in blocks for line in text.split("\n")[:-1]]


def literally(said: Lines) -> list[tuple[tuple[int, ...], str]]:
    """The rule, line by line."""
    rest, shown = {rank: list(said[rank]) for rank in sorted(said)}, []
    while rest := {rank: lines for rank, lines in rest.items() if lines}:
        heads = [lines[0] for lines in rest.values()]
        free = (head for head in heads if all(each[0] == head or head not in each for each in rest.values()))
        text = next(free, heads[0])
        together = tuple(rank for rank, lines in rest.items() if lines[0] == text)
        for rank in together:
            rest[rank].pop(0)
        shown.append((together, text))
    return shown


@pytest.mark.parametrize(("said", "shown"), FOLDED.values(), ids=FOLDED)
def test_equal_lines_of_ranks_fold(said: dict[int, str], shown: str) -> None:
    found = one_by_one(merge_lines(as_texts(said)))
    assert ", ".join(f"{rank_prefix(ranks)} {text}" for ranks, text in found) == shown


@given(SAID)
def test_folding_keeps_each_ranks_lines_and_their_order(said: Lines) -> None:
    shown = one_by_one(merge_lines(as_texts(said)))
    for rank, texts in said.items():
        assert [text for ranks, text in shown if rank in ranks] == texts
    assert all(list(ranks) == sorted(set(ranks)) for ranks, _ in shown)


@given(SAID)
def test_whole_blocks_fold_as_their_lines_do(said: Lines) -> None:
    assert one_by_one(merge_lines(as_texts(said))) == literally(said)


@given(st.lists(SAID, max_size=6))
def test_what_comes_little_by_little_is_shown_once_in_order_and_at_the_next_turn_at_the_latest(
    turns: list[Lines],
) -> None:
    live, shown = LiveFold(), []
    said: Lines = {rank: [] for rank in range(8)}
    for turn in turns:
        before = {rank: len(lines) for rank, lines in said.items()}
        for rank, lines in turn.items():
            said[rank] += lines
        shown += one_by_one(live.add(as_texts(turn)))
        for rank in said:
            of_rank = [text for ranks, text in shown if rank in ranks]
            assert of_rank == said[rank][: len(of_rank)]
            assert len(of_rank) >= before[rank]
    shown += one_by_one(live.flush())
    for rank in said:
        assert [text for ranks, text in shown if rank in ranks] == said[rank]


@pytest.mark.parametrize(
    ("turns", "shown"),
    [
        ([{0: "a", 1: "a"}, {0: "b"}, {1: "b"}], "[0-1] a | | [0-1] b"),
        ([{0: "a", 1: "a"}, {0: "b"}, {}, {1: "b"}], "[0-1] a | | [0] b | | [1] b"),
        ([{0: "ab", 1: "a"}, {0: "c", 1: "bc"}], "[0-1] a | [0-1] b, [0-1] c"),
        ([{0: "ab", 1: "a", 2: "ab"}, {1: "b"}], "[0-2] a | [0-2] b"),
        ([{0: "ab", 1: "xy"}, {0: "c", 1: "z"}], "[0] a, [0] b, [1] x, [1] y | [0] c, [1] z"),
        ([{0: "a", 1: "a", 2: "x"}, {0: "b", 2: "y"}, {1: "b"}], "[0-1] a, [2] x | [2] y | [0-1] b"),
        ([{0: "a", 1: "a"}, {0: "b"}], "[0-1] a |  | [0] b"),
    ],
    ids=[
        "a line that others have not said yet waits for them",
        "for one turn",
        "all go on where the slowest is",
        "some are ahead together",
        "who says something of its own never waits",
        "each with its own company",
        "what waits at the end is shown",
    ],
)
def test_of_lines_that_come_little_by_little_who_is_ahead_waits(
    turns: list[dict[int, str]], shown: str
) -> None:
    live = LiveFold()
    found = [live.add(as_texts(turn)) for turn in turns]
    found += [last] if (last := live.flush()) else []
    words = [", ".join(f"{rank_prefix(ranks)} {text}" for ranks, text in one_by_one(each)) for each in found]
    assert " | ".join(words).replace("  ", " ") == shown.replace("  ", " ")


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
    assert clean(make_readable(text)) == shown


def test_hostile_lines_are_harmless_behind_their_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    """Many at once: none can end its line, move to another one or look like that of another rank."""
    texts = ["\x1b[2Jboom", "a\u2028[1] b", "\x0b\x0c\x85", "caf\xe9 \u202e\U0001f600", "x\ud800\x00\x7f"]
    log_lines.show_logs(Output(), [log_of(0, *texts), log_of(1, "fine")])
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "[0] \\x1b[2Jboom",
        "[0] a\\u2028[1] b",
        "[0] \\x0b\\x0c\\x85",
        "[0] caf\xe9 \\u202e\U0001f600",
        "[0] x\\ud800\\x00\\x7f",
        "[1] fine",
    ]


@pytest.mark.parametrize("text", ["x\ud800\x00\x7f", "\x1b[2Jboom", 'a"\\b\u2028'])
def test_hostile_lines_that_are_followed_as_json_are_valid_json(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = AttemptId(TaskId(JobId("train"), 3), 0)
    printer = log_lines.LogPrinter(Output(as_json=True))
    printer.step(Step(texts=[LogText(attempt, "out", f"{text}\n{text}\n")]))
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.replace("\n", "").isprintable()
    assert [(each["rank"], each["text"]) for each in checked("iris logs", out)] == [(3, text), (3, text)]


@given(st.text())
def test_text_is_made_visible_character_by_character(text: str) -> None:
    def shown(character: str) -> str:
        if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}:
            return character
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    assert clean(text) == "".join(map(shown, text))


def line(rank: int, text: str, stream: str = "out") -> LogLine:
    return LogLine(AttemptId(TaskId(JobId("train"), rank), 0), stream, text)


def log_of(rank: int, *texts: str, note: str = "") -> TaskLog:
    lines = tuple(line(rank, text) for text in texts)
    return TaskLog(task=TaskId(JobId("train"), rank), state="RUNNING", attempt=0, lines=lines, note=note)


def test_a_single_task_has_no_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show_logs(Output(), [log_of(2, "hello")])
    assert capsys.readouterr().out == "hello\n"


def test_without_folding_each_rank_speaks_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show_logs(Output(), [log_of(0, "a", "b"), log_of(1, "a")], folded=False)
    assert capsys.readouterr().out == "[0] a\n[0] b\n[1] a\n"


def test_a_long_line_of_a_program_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show_logs(Output(), [log_of(0, "x" * 5000), log_of(1)])
    assert capsys.readouterr().out == f"[0] {'x' * 5000}\n"


def test_standard_error_comes_after_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    task = TaskLog(
        task=TaskId(JobId("train"), 0), state="RUNNING", lines=(line(0, "oops", "err"), line(0, "fine"))
    )
    log_lines.show_logs(Output(), [task])
    assert capsys.readouterr().out.splitlines() == ["fine", "oops"]


def test_equal_messages_of_many_tasks_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show_logs(Output(), [log_of(rank, note="has not started: chips: busy") for rank in range(4)])
    assert capsys.readouterr().err == "train/task-[0-3]: has not started: chips: busy\n"
