"""`iris cancel` selects jobs by id, label and state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.errors import ExitCode
from tests.render.scenes import session_of
from tests.support.lab import Lab


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Five pending jobs without a worker, two of them children, and one cancelled job."""
    lab = Lab()
    for name, labels in (
        ("a", {"sweep": "lr"}),
        ("b", {"sweep": "lr", "team": "nlp"}),
        ("c", {"sweep": "wd"}),
        ("gone", {"sweep": "lr"}),
    ):
        lab.job(name, labels=labels)
    lab.job("a/one", labels={"sweep": "lr"}).job("c/two")
    session_of(lab.cancel("gone"), tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    return path


def displayed(tmp_path: Path) -> Path:
    """One job waits for a retry, one is half done, one was never started: nothing runs."""
    lab = Lab().worker("w").job("flaky", max_retries_failure=3).job("sweep", array="0-3%2").schedule()
    lab.reports("flaky/* running", "sweep/* running").reports("flaky/* exited 1", "sweep/* exited 0")
    session_of(lab.job("late", cpu=500.0, force=True), tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    return path


@pytest.mark.parametrize(
    ("words", "cancelled"),
    [
        (["--state", "RETRYING"], ["flaky"]),
        (["--state", "pending"], ["late", "sweep"]),
        (["--state", "running"], ["flaky", "sweep"]),
        (["--state", "retrying", "--state", "pending"], ["flaky", "late", "sweep"]),
    ],
    ids=" ".join,
)
def test_jobs_are_cancelled_by_what_they_read(
    words: list[str], cancelled: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cancel(displayed(tmp_path), words, capsys) == (ExitCode.OK, cancelled)


def cancel(config: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = app.run(["--config", str(config), "--json", "cancel", *words])
    shown = capsys.readouterr()
    return code, sorted(json.loads(shown.out)["cancelled"]) if shown.out else shown.err.splitlines()[-1:]


@pytest.mark.parametrize(
    ("words", "cancelled"),
    [
        (["--label", "sweep=lr"], ["a", "a/one", "b"]),
        (["--label", "sweep=lr", "--label", "team"], ["b"]),
        (["--state", "pending"], ["a", "a/one", "b", "c", "c/two"]),
        (["--label", "sweep=wd", "--state", "Pending"], ["c"]),
        (["a", "c", "--label", "sweep=wd"], ["c"]),
        (["a", "--prefix", "--state", "pending"], ["a", "a/one"]),
    ],
    ids=" ".join,
)
def test_labels_and_states_select_open_jobs(
    words: list[str], cancelled: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cancel(config, words, capsys) == (ExitCode.OK, cancelled)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--state", "running"], ExitCode.NOT_FOUND, "no open job matches the --label or --state"),
        (["--label", "swep=lr"], ExitCode.NOT_FOUND, "did you mean 'sweep'?"),
        (["--state", "pendign"], ExitCode.USAGE, "did you mean 'pending'?"),
        (["--label", "=x"], ExitCode.USAGE, "is not a label"),
        (["", "--prefix"], ExitCode.USAGE, "an empty prefix would match all jobs"),
        (["b", "", "--prefix"], ExitCode.USAGE, "an empty prefix would match all jobs"),
        (["--prefix"], ExitCode.USAGE, "name jobs, or select them with --label or --state"),
        (["--prefix", "--state", "pending"], ExitCode.USAGE, "--prefix needs the beginning of a job id"),
        ([], ExitCode.USAGE, "name jobs, or select them with --label or --state"),
    ],
)
def test_a_selection_of_nothing_is_refused_and_cancels_nothing(
    words: list[str], code: ExitCode, message: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    returned, (error,) = cancel(config, words, capsys)
    assert returned == code
    assert message in json.dumps(json.loads(error), ensure_ascii=False)
    _, all_open = cancel(config, ["--state", "pending"], capsys)
    assert all_open == ["a", "a/one", "b", "c", "c/two"]
