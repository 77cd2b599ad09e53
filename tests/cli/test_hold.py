"""`iris hold`, `iris release` and `iris set` change open jobs, all that are named or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iris_cli.cli import app
from iris_cli.core.ids import JobId
from iris_cli.core.lifecycle.jobs import retry
from iris_cli.errors import ExitCode
from tests.render.scenes import session_of
from tests.support.lab import Lab


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The gang `train` runs, `over` has failed, `late` and `later` are pending."""
    made = Lab().slice("a", "v4-16").worker("w", cpu=1)
    made.job("train", tpu="v4-16").job("over").schedule()
    made.reports("train/* running", "over/* running", "over/* exited 1")
    made.job("late", cpu=500.0, force=True).job("later", cpu=500.0, force=True)
    session_of(made, tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    return path


def changed(config: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert app.run(["--config", str(config), "--json", *words]) == ExitCode.OK
    jobs: dict[str, Any] = json.loads(capsys.readouterr().out)["jobs"]
    return jobs


def test_a_second_call_changes_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, held in (("hold", True), ("release", False)):
        for first in (True, False):
            jobs = changed(config, capsys, command, "late", "train")
            assert [(name, each["changed"], each["held"]) for name, each in jobs.items()] == [
                ("late", first, held),
                ("train", first, held),
            ]
    for first in (True, False):
        jobs = changed(config, capsys, "set", "late", "--priority", "high", "--scheduling-timeout", "2h")
        assert jobs == {
            "late": {"changed": first, "held": False, "priority": "high", "scheduling_timeout": 7200}
        }


def test_a_held_job_says_so_and_what_to_type(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--config", str(config), "hold", "late", "train"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == ["late: held", "train: held; 2 started tasks continue"]
    for job in ("late", "train"):  # one is pending, one is running
        for words in (["status"], ["status", job], ["why", job]):
            assert app.run(["--config", str(config), *words]) == ExitCode.OK
            assert f"held until `iris release {job}`" in capsys.readouterr().out
    assert app.run(["--config", str(config), "history", "late"]) == ExitCode.OK
    assert "job late held" in capsys.readouterr().out


def test_a_task_that_is_being_stopped_does_not_continue(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Lab().worker("w").job("train", replicas=2).schedule().reports("train/* running")
    with made.transaction() as draft:
        retry(draft, JobId("train"), 0)
    session_of(made, config.parent / "other")
    words = ["--config", str(config), "--state-dir", str(config.parent / "other")]
    assert app.run([*words, "hold", "train"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == ["train: held; 1 started task continues"]


def test_a_job_that_was_never_held_is_not_told_to_be_released(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), "release", "late"]) == ExitCode.OK
    assert "late: not held" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["hold", "late", "over"], ExitCode.USAGE, "over has ended (FAILED)", "iris launch --again over"),
        (["release", "late", "lat"], ExitCode.NOT_FOUND, "no job 'lat'", "did you mean 'late'?"),
        (["set", "late"], ExitCode.USAGE, "nothing to set", "--priority NAME or --scheduling-timeout TIME"),
        (["set", "late", "--priority", "hihg"], ExitCode.USAGE, "'hihg'", "did you mean 'high'?"),
        (["set", "late", "--scheduling-timeout", "soon"], ExitCode.USAGE, "'soon'", ""),
        (["hold"], ExitCode.USAGE, "JOB", ""),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_of_it_is_done(
    words: list[str],
    code: ExitCode,
    message: str,
    hint: str,
    config: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = (config.parent / "state/events.jsonl").read_bytes()
    assert app.run(["--config", str(config), *words]) == code
    said = capsys.readouterr().err
    assert message in said
    assert hint in said
    assert (config.parent / "state/events.jsonl").read_bytes() == before
