"""`iris retry` stops what runs of a job or a task, once, and refuses what has ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.core.ids import JobId
from iris_cli.errors import ExitCode
from tests.render.scenes import session_of
from tests.support.inside import Inside
from tests.support.lab import Lab


def lab() -> Lab:
    """A gang and an array run; the first task of the array has succeeded. `over` has failed, `late` is pending."""
    made = Lab().slice("a", "v4-16").worker("w")
    made.job("train", tpu="v4-16").job("sweep", array="0-2").job("over").schedule()
    made.reports("train/* running", "sweep/* running", "over/* running")
    made.reports("sweep/task-0 exited 0", "over/* exited 1")
    return made.job("late", cpu=500.0, force=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    session_of(lab(), tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    return path


def test_a_job_may_be_named_almost_like_an_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Lab().worker("w").job("train", cpu=0.5).schedule().reports("train/* running")
    Inside(made).submit(name="attempt-a")
    made.schedule()
    session_of(made, tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\nworkers: []\n")
    assert app.run(["--config", str(path), "--json", "retry", "train/attempt-a/task-0"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["retried"] == ["train/attempt-a/task-0/attempt-0"]


@pytest.mark.parametrize(
    ("subject", "retried"),
    [
        ("train", ["train/task-0/attempt-0", "train/task-1/attempt-0"]),
        ("train/task-1", ["train/task-0/attempt-0", "train/task-1/attempt-0"]),
        ("sweep", ["sweep/task-1/attempt-0", "sweep/task-2/attempt-0"]),
        ("sweep/task-2", ["sweep/task-2/attempt-0"]),
        ("late", []),
    ],
)
def test_live_attempts_are_stopped_once(
    subject: str, retried: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stopped in (retried, []):
        assert app.run(["--config", str(config), "--json", "retry", subject]) == ExitCode.OK
        found = json.loads(capsys.readouterr().out)
        assert (found["retried"], list(found["stopping"])) == (stopped, retried)


@pytest.mark.parametrize(
    ("subject", "code", "message"),
    [
        (
            "sweep/task-0",
            ExitCode.USAGE,
            "sweep/task-0 has ended (SUCCEEDED): `iris retry` needs an open task",
        ),
        ("over", ExitCode.USAGE, "over has ended (FAILED): `iris retry` needs an open job"),
        ("over/task-0", ExitCode.USAGE, "over has ended (FAILED): `iris retry` needs an open job"),
        ("train/task-7", ExitCode.NOT_FOUND, "train has no task-7"),
        ("train/task-0/attempt-0", ExitCode.NOT_FOUND, "no job or task"),
        ("trian", ExitCode.NOT_FOUND, "did you mean 'train'?"),
    ],
)
def test_a_subject_that_has_ended_or_does_not_exist_is_refused(
    subject: str, code: ExitCode, message: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["--config", str(config), "retry", subject]) == code
    assert message in capsys.readouterr().err


def test_a_task_that_does_not_run_is_told_apart_from_its_job(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subject in ("sweep/task-2", "sweep/task-2", "train/task-1", "late/task-0"):
        assert app.run(["--config", str(config), "retry", subject]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "retrying sweep/task-2: stopping 1 attempt on w",
        "retrying train: stopping 2 attempts on a-[0-1]",
    ]
    assert [line for line in err.splitlines() if "/task-" in line] == [
        "sweep/task-2: already stopping 1 attempt on w",
        "late/task-0: nothing to retry, no attempt is live; details: iris why late/task-0",
    ]


def test_of_an_array_that_has_ended_the_hint_submits_what_did_not_succeed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Lab().worker("w").job("sweep", array="0-1").schedule()
    session_of(made.reports("sweep/task-0 exited 0", "sweep/task-1 exited 1"), tmp_path / "state")
    config = tmp_path / "cluster.yaml"
    config.write_text("cluster: {name: lab}\nworkers: []\n")
    assert app.run(["--config", str(config), "retry", "sweep"]) == ExitCode.USAGE
    assert "hint: iris launch --again sweep --failed\n" in capsys.readouterr().err


def test_the_status_of_a_job_says_that_its_retry_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Lab().worker("w").job("job").schedule().reports("job/* running").retry("job")
    session_of(made.reports("job/* exited 1").schedule(), tmp_path / "state")
    config = tmp_path / "cluster.yaml"
    config.write_text("cluster: {name: lab}\nworkers: []\n")
    assert app.run(["--config", str(config), "status", "job"]) == ExitCode.OK
    assert [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("retry")] == [
        ["retry", "as", "requested"]
    ]


@pytest.mark.parametrize("word", ["requeue", "restart"])
def test_other_tools_words_for_it_are_understood(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([word, "train"]) == ExitCode.USAGE
    assert "did you mean 'retry'?" in capsys.readouterr().err


def test_a_charged_failure_before_the_order_is_kept_apart_from_the_retry() -> None:
    made = Lab().worker("w").job("job", max_retries_failure=1).schedule()
    made.reports("job/* running").reports("job/* exited 1").schedule().reports("job/* running").retry("job")
    made.reports("job/* exited 1").schedule()
    (task,) = made.cluster.tasks_of(JobId("job"))
    assert (task.failures, len(task.attempts)) == (1, 3)
