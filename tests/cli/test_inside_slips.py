"""Mistakes on a command line inside a task: the small iris prints the words of the whole one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli import app, tree
from iris_cli.errors import ExitCode, UsageError
from iris_cli.remote.inside.command_line import COMMANDS, OPERATOR_ONLY
from iris_cli.remote.inside.program import GLOBAL
from tests.client.operator_thread import OperatorThread
from tests.support.small_iris import Ran, Task, operator

Iris = Callable[..., Ran]


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    task = Task(tmp_path)
    monkeypatch.setenv("IRIS_TASK_DIR", str(task.directory))
    monkeypatch.setenv("IRIS_JOB_ID", "train")
    for name in ("IRIS_STATE_DIR", "IRIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(task.directory)
    for name, data in {"nul": b"a\0b\n", "empty": b"", "bad": b"ok\na\xff\n"}.items():
        Path(name).write_bytes(data)
    return task


SLIPS = (
    *(f"wait a --timeout {text}" for text in ("x", "1h30", "٣", "1_0", "nan", "-1", "99999999999999h")),
    *("wait", "wait a --timeout", "wait --timeout=x a", "wait a --nope", "wait train", "wait a train"),
    *(f"logs a --tail {text}" for text in ("x", "²", "-5", "1_0", "99999999999")),
    *(f"logs a --attempt {text}" for text in ("x", "-1", "1_0", "٣", "2.0")),
    *("logs", "logs a b", "logs a --stream x", "logs a -n", "logs a --strem out"),
    *(f"register-endpoint http {text}" for text in ("x", "²", "٣", "1_0", "-5", "80 90", "--remvoe")),
    *(f"register-endpoint http 80 --metadata{text}" for text in ("", " x", " =x")),
    *("register-endpoint", "register-endpoint http", "status a b", "status --nope", "cancel --reason"),
    *(f"launch {words}" for words in ("true", "--nmae x -- true", "--name", "--name -- true", "-x -- true")),
    *(f"launch --env {text} -- true" for text in ("NOWHERE", "-1")),
    *(f"launch --label {text} -- true" for text in ("x", "=y", "-x")),
    *(f"launch --cpu {text} -- true" for text in ("many", "1_0", "nan", "inf", "٣", "1e400", "0x10")),
    *(f"launch --replicas {text} -- true" for text in ("x", "2.0", "1_0", "²", "٣")),
    *(f"launch --max-retries-failure {text} -- true" for text in ("1.5", "x")),
    *(f"launch --memory {text} -- true" for text in ("x", "-1", "5")),
    *(f"launch --timeout {text} -- true" for text in ("x", "-1", "٣", "1_0")),
    *(f"launch --{text} -- true" for text in ("priority urgent", "env-preset x", "replace-lost alwasy")),
    *(f"launch --each-line {text} -- true" for text in ("nowhere", "nul", "empty", "bad", ".")),
    *(f"launch --request-id {text} -- true" for text in ("../x", "-x")),
    *("launch --force=yes -- true", "launch --wait=1 -- true", "launch --tim 2 -- true"),
)


@pytest.mark.parametrize("line", SLIPS)
def test_a_mistake_gets_the_words_of_the_whole_iris(
    line: str, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Ran(app.run(line.split()), *capsys.readouterr())
    small = task.iris(*line.split(), env={"IRIS_JOB_ID": "train"})
    assert whole.code == ExitCode.USAGE
    assert small == whole
    assert list((task.directory / "outbox").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        *("cancel a --reason -x", "launch --setup -x -- true"),
        *("launch --env A=-1 -- true", "launch -eA=-1 -- true", "launch --label -x=y -- true"),
        *("launch --slices +2 -- true", "launch --cpu .5 -- true", "launch --priority HIGH -- true"),
        *("wait a --timeout 1e3", "launch --replicas 2 --replicas 3 -- true", "logs a -n2 --stream OUT"),
    ],
)
def test_a_value_means_the_same_to_both(line: str, task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(run: Callable[..., object], *words: object) -> list[object]:
        with OperatorThread(task.directory, operator()) as thread:
            run(*words)
        return thread.asked

    whole = asked(app.run, line.split())
    small = asked(task.iris, *line.split())
    assert (small[0], small[-1], capsys.readouterr().err) == (whole[0], whole[-1], "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--name -x", "job.name: '-x' is not a job name"),
        ("--after -x", "job.after.0.: '-x' is not a job name"),
        ("--replicas -1", "job.replicas: must be between 1 and 1000000000, not -1"),
    ],
)
def test_a_value_that_begins_with_a_dash_arrives(words: str, says: str, task: Task) -> None:
    with pytest.raises(UsageError, match=says):
        task.asked("launch", *words.split(), "--", "true")


def test_an_option_of_the_operator_is_refused_by_its_name(task: Task) -> None:
    group = tree.parser(tuple(COMMANDS))
    missing = {
        f"{command} {flag}"
        for command, (_, _, known) in COMMANDS.items()
        for option in group.commands[command].params
        for flag in option.opts
        if flag.startswith("-") and flag not in (*known, *OPERATOR_ONLY, *GLOBAL, "--help", "-h")
    }
    assert missing == set()
    for line in ("logs a --follow", "launch --dry-run -- true", "--state-dir s status", "status --version"):
        (flag,) = set(line.split()) & set(OPERATOR_ONLY)
        ran = task.iris(*line.split())
        assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: {flag} is not available inside a task")


def test_a_directory_is_refused_with_what_to_do_instead(task: Task) -> None:
    assert task.iris("launch", "--workdir", ".", "--", "true") == (
        2,
        "",
        "error: --workdir is not available inside a task\n"
        "hint: drop it to use the parent's directory, or submit with the Python client\n",
    )
