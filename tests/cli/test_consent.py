"""Questions: asked where something is lost, of a person alone, and Ctrl-C is an answer, too."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from iris_cli.cli import consent
from iris_cli.cli.context import Context
from iris_cli.errors import ExitCode, IrisError, UsageError
from iris_cli.render.console import Output
from tests.cli.test_init import NODE
from tests.house.rules import ROOT
from tests.support.command_lines import root
from tests.support.terminal import Screen, Terminal

IMPORT = [sys.executable, "-m", "iris_cli", "cluster", "import", "--from", "tpus.json"]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A directory with a list of slices to be imported, at an empty home."""
    directory = tmp_path / "lab"
    directory.mkdir()
    (directory / "tpus.json").write_text(f"[{NODE}]")
    return directory


def terminal(lab: Path) -> Terminal:
    paths = {"PYTHONPATH": str(ROOT), "HOME": str(lab.parent), "IRIS_CONFIG": "", "IRIS_STATE_DIR": ""}
    return Terminal(IMPORT, env=paths, cwd=lab, columns=200, lines=60)


@pytest.mark.parametrize(
    ("keys", "code", "last"),
    [
        ("\x03", ExitCode.INTERRUPTED, "interrupted"),
        ("\x04", ExitCode.FAILED, "error: nothing was written"),
        ("\r", ExitCode.FAILED, "error: nothing was written"),
    ],
    ids=["Ctrl-C", "Ctrl-D", "Enter"],
)
def test_any_answer_other_than_yes_changes_nothing(keys: str, code: ExitCode, last: str, lab: Path) -> None:
    with terminal(lab) as shown:
        shown.until(lambda screen: "[y/N]" in screen.text, "the question")
        shown.type(keys)
        assert shown.end() == code
        assert lines(shown.screen)[-1] == last
        assert sum("[y/N]" in line or line == last for line in lines(shown.screen)) == 2, "one line each"
    assert [path.name for path in lab.iterdir()] == ["tpus.json"]


def test_the_question_is_repeated_after_an_unclear_answer(lab: Path) -> None:
    with terminal(lab) as shown:
        shown.until(lambda screen: screen.text.count("[y/N]") == 1, "the question")
        shown.type("perhaps\r")
        shown.until(lambda screen: screen.text.count("[y/N]") == 2, "the question again")
        shown.type("Yes\r")
        assert shown.end() == ExitCode.OK
    assert (lab / "cluster.yaml").is_file()


def lines(screen: Screen) -> list[str]:
    return [line for line in screen.text.splitlines() if line.strip()]


@pytest.mark.parametrize("as_json", [False, True])
def test_without_anybody_to_ask_it_is_refused_in_words(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    iris = Context(output=Output(as_json=as_json))
    assert consent.ask(iris, "Remove it?") is None
    with pytest.raises(UsageError) as caught:
        consent.require(iris, "Remove it?", yes=False, action="remove", refusal="nothing was removed")
    assert (caught.value.message, caught.value.hint) == ("not a terminal: pass --yes to remove", "")
    assert consent.is_given(iris, "Remove it?", yes=False, action="remove") is False
    assert "Remove it? not a terminal: pass --yes to remove" in capsys.readouterr().err


def test_yes_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "ask", lambda *_: pytest.fail("it asked"))
    consent.require(Context(), "Remove it?", yes=True, action="remove", refusal="nothing was removed")
    assert consent.is_given(Context(), "Remove it?", yes=True, action="remove")


def test_a_no_to_the_only_question_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "ask", lambda *_: False)
    with pytest.raises(IrisError, match="nothing was removed"):
        consent.require(Context(), "Remove it?", yes=False, action="remove", refusal="nothing was removed")


def test_nothing_else_in_the_house_asks_and_who_asks_knows_yes() -> None:
    package = ROOT / "iris_cli"
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    elsewhere = re.compile(r"typer\.(confirm|prompt)\(|\binput\(|\bPrompt\.ask|/dev/tty")
    assert [name for name, text in texts.items() if elsewhere.search(text) and name != "cli/consent.py"] == []
    asking = sorted(name for name, text in texts.items() if re.search(r"consent\.(require|is_given)\(", text))
    assert asking == [
        f"cli/commands/{name}.py" for name in ("autoscale", "cluster", "doctor", "gc", "worker")
    ]
    for path in (
        "autoscale",
        "cluster import",
        "doctor",
        "gc",
        "worker probe",
        "worker unwedge",
        "log salvage",
    ):
        command = root()
        for name in path.split():
            command = command.commands[name]
        assert "--yes" in {option for each in command.params for option in each.opts}, path
