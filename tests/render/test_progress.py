"""What takes long says how far it is: on a terminal, after about a second, and it leaves nothing behind."""

from __future__ import annotations

import sys

import pytest

from iris_cli.ops.session import ProgressState
from iris_cli.render import progress
from iris_cli.render.console import Output
from iris_cli.render.progress import ProgressLine, line_text


class Terminal:
    """Standard error as a terminal, of a width that is not known."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._said = ""

    def getvalue(self) -> str:
        self._said += self._capsys.readouterr().err
        return self._said


class Time:
    at = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal(capsys)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def line(time: Time, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> ProgressLine:
    """One that looks only when it is told to."""
    monkeypatch.setattr(ProgressLine, "_show", lambda self: None)
    return ProgressLine(time)


@pytest.mark.parametrize(
    ("far", "width", "shown"),
    [
        (("probing", 0, 64, "worker"), 80, f"probing  {'─' * 24}  0 of 64 workers  3s"),
        (("probing", 16, 64, "worker"), 80, f"probing  {'━' * 6}{'─' * 18}  16 of 64 workers  3s"),
        (("probing", 64, 64, "worker"), 80, f"probing  {'━' * 24}  64 of 64 workers  3s"),
        (("probing", 70, 64, "worker"), 80, f"probing  {'━' * 24}  70 of 64 workers  3s"),
        (("probing", 0, 1, "worker"), 60, "probing  3s"),
        (("pulling", 3 << 20, 0, "bytes"), 80, "pulling  3MiB  3s"),
        (("pulling", 1 << 20, 4 << 20, "bytes"), 60, "pulling  1MiB of 4MiB  3s"),
        (("reading the log", 0, 0, ""), 80, "reading the log  3s"),
        (("exporting", 1, 0, "event"), 80, "exporting  1 event  3s"),
        (("waiting for \x1b[31m\nw0", 0, 0, ""), 80, "waiting for \\x1b[31m⏎w0  3s"),
        (("probing", 16, 64, "worker"), 20, "probing  16 of 64 …"),
        (("probing", 16, 64, "worker"), 1, "…"),
    ],
    ids=str,
)
def test_a_line_says_what_is_done_how_far_and_for_how_long(
    far: ProgressState, width: int, shown: str
) -> None:
    assert line_text(far, 3.7, width) == shown


def test_what_is_quick_shows_nothing(line: ProgressLine, time: Time, terminal: Terminal) -> None:
    with line(lambda: ("probing", 1, 2, "worker")):
        time.at = 0.9
        line.update()
    assert terminal.getvalue() == ""


def test_it_comes_after_a_second_and_is_gone_at_the_end(
    line: ProgressLine, time: Time, terminal: Terminal
) -> None:
    with line(lambda: ("probing", 1, 2, "worker")):
        time.at = 1.0
        line.update()
        line.update()
        shown = terminal.getvalue()
        assert shown.startswith("\rprobing  ━")
        assert shown.count("probing") == 1
    assert terminal.getvalue() == shown + "\r\x1b[K"


def test_it_makes_way_for_what_is_said_and_comes_back(
    line: ProgressLine, time: Time, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE", line)
    monkeypatch.setattr(
        sys.stderr, "isatty", lambda: True
    )  # here: each phase of a test has a stream of its own
    output = Output()
    with output.progress(lambda: ("reading the log", 0, 0, "")):
        time.at = 2.0
        line.update()
        output.message("torn line set aside")
        line.update()
    wiped = "\r\x1b[K"
    shown = "\rreading the log  2s\x1b[K"
    assert terminal.getvalue() == f"{shown}{wiped}torn line set aside\n{shown}{wiped}"


def test_many_short_things_are_one_long_one(line: ProgressLine, time: Time, terminal: Terminal) -> None:
    for turn in range(3):
        with line(lambda: ("removing", 1, 2, "worker")):
            time.at = turn * 0.4 + 0.3
            line.update()
    assert "removing" in terminal.getvalue()


def test_after_a_pause_the_delay_starts_again(line: ProgressLine, time: Time, terminal: Terminal) -> None:
    for time.at in (0.0, 0.9, 5.0):
        with line(lambda: ("removing", 1, 2, "worker")):
            line.update()
    assert terminal.getvalue() == ""


def test_the_newest_that_has_something_to_say_is_shown(
    line: ProgressLine, time: Time, terminal: Terminal
) -> None:
    def broken() -> ProgressState:
        raise RuntimeError("dictionary changed size during iteration")

    with (
        line(lambda: ("outer", 0, 0, "")),
        line(lambda: ("inner", 0, 0, "")),
        line(lambda: ("", 0, 0, "")),
        line(broken),
    ):
        time.at = 1.0
        line.update()
    assert terminal.getvalue() == "\rinner  1s\x1b[K\r\x1b[K"


def test_an_interrupted_command_leaves_no_line_behind(
    line: ProgressLine, time: Time, terminal: Terminal
) -> None:
    left = line(lambda: ("probing", 1, 2, "worker"))
    left.__enter__()
    time.at = 1.0
    line.update()
    line.end()
    line.update()
    assert terminal.getvalue().endswith("\x1b[K\r\x1b[K")


@pytest.mark.parametrize(
    ("output", "term", "is_terminal"),
    [
        (Output(as_json=True), "xterm", True),
        (Output(quiet=True), "xterm", True),
        (Output(), "dumb", True),
        (Output(), "", True),
        (Output(), "xterm", False),
    ],
    ids=["json", "quiet", "dumb", "no TERM", "pipe"],
)
def test_without_a_terminal_no_progress_line_is_shown(
    output: Output, term: str, is_terminal: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(progress, "LINE", None)  # nobody may ask for it
    with output.progress(lambda: ("probing", 1, 2, "worker")):
        pass
