"""What is said of an error, and when the traceback is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_cli import __version__
from iris_cli.cli import app, failures
from iris_cli.core.events import IllegalTransitionError
from iris_cli.core.ids import JobId, TaskId
from iris_cli.errors import ExitCode


def fault() -> Exception:
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("verbose", [False, True])
def test_a_fault_of_ours_shows_where_it_happened_if_asked(
    verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.report(failures.internal_error(fault()), verbose=verbose) is ExitCode.FAILED
    said = capsys.readouterr().err
    assert "error: internal error: ZeroDivisionError" in said
    assert ("_ = 1 // 0" in said) is verbose


@pytest.mark.parametrize("verbose", [False, True])
def test_an_illegal_transition_shows_its_story_once(
    verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    illegal = IllegalTransitionError("this does not fit")
    illegal.attach(TaskId(JobId("train"), 0), ("attempt-0 on w: Assigned()",), ("seq 3 TaskAssigned()",))
    failures.report(failures.internal_error(illegal), verbose=verbose)
    said = capsys.readouterr().err
    assert [said.count(line) for line in illegal.story] == [1, 1]
    if not verbose:
        first, *story, hint = said.splitlines()
        assert first == "error: internal error: IllegalTransitionError: this does not fit"
        assert story == ["  attempt-0 on w: Assigned()", "  seq 3 TaskAssigned()"]
        assert hint.startswith("hint: ")


def error_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Run a command line with --json and return its error document."""
    code = app.run(words)
    shown = capsys.readouterr()
    assert shown.out == ""
    document = json.loads(shown.err)
    assert document["schema_version"] == 1
    assert document["error"]["exit_code"] == code != ExitCode.OK
    error: dict[str, object] = document["error"]
    return error


def test_an_error_under_json_is_a_document_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text("cluster: {name: lab}\nworkers: []\n")
    there = ["--config", str(config)]
    assert error_of([*there, "--json", "status", "tr\x1b[2Jain"], capsys) == {
        "message": r"no job 'tr\x1b[2Jain'",
        "hint": "`iris status` lists the jobs",
        "exit_code": ExitCode.NOT_FOUND,
    }
    assert error_of([*there, "status", "--lable", "x", "--json"], capsys)["hint"] == "did you mean '--label'?"
    config.write_text("cluster: {nam: lab}\n")
    problems = error_of([*there, "--json", "launch", "--", "true"], capsys)["problems"]
    assert isinstance(problems, list)
    assert "nam" in problems[0]


@pytest.mark.parametrize("group", ["log", "worker", "cron", "loop", "config", "cluster"])
def test_a_group_without_a_command_is_an_error_under_json(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of([group, "--json"], capsys)
    assert (error["message"], error["hint"]) == (f"`iris {group}` needs a command", f"iris {group} --help")


@pytest.mark.parametrize("line", ["--version --json", "--json --version --quiet", "--version status --json"])
def test_the_version_is_printed_as_json(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(line.split()) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "version": __version__}


def test_json_and_verbose_behind_the_dashes_belong_to_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "missing.yaml"
    assert app.run(["--config", str(config), "launch", "--", "prog", "--json", "--verbose"]) != ExitCode.OK
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert "Traceback" not in shown


@pytest.mark.parametrize("words", [["init"], ["status"], ["--config", "/etc/hosts", "status"]])
def test_a_deleted_current_directory_is_reported(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert app.run(words) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "error: the current directory was deleted\nhint: change to another directory\n"
    )
