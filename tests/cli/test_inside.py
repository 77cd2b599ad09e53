"""`iris` inside a task: the same words become requests, and their answers the same exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.cli import app
from iris_cli.core.messages.requests import MAX_WAITS, Answer, Cancel, Refusal, Request, Submit
from iris_cli.errors import ExitCode
from tests.client.operator_thread import OperatorThread
from tests.support.json_output import check_run
from tests.support.small_iris import Ran, Task, operator

Iris = Callable[..., Ran]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


@pytest.fixture
def iris(task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iris:
    """Runs the whole `iris` in this process, which is made to look like a task."""
    monkeypatch.setenv("IRIS_TASK_DIR", str(task.directory))
    monkeypatch.setenv("IRIS_JOB_ID", "train")
    monkeypatch.setenv("HERE", "here it is")
    for name in ("IRIS_STATE_DIR", "IRIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(task.directory)

    def run(*words: str) -> Ran:
        code = app.run(words)
        ran = Ran(code, *capsys.readouterr())
        check_run(words, ran.out, ran.err)
        return ran

    return run


LINES = (
    "launch -- true",
    "launch --no-inherit-constraints -- true",
    "launch --no-inherit-constraints -c region=eu --prefer pool -- true",
    "launch --prefer pool --no-inherit-constraints -- true",
    "launch --name eval --tpu v5litepod-16 --cpu 0.5 --memory 1GiB --replicas 8 --slices=2 -- python a.py --json",
    "launch -c region=us-west4 -c tpu-worker-id>=1 --constraint=!spot --prefer pool --tolerate spot -- true",
    "launch --group-by rack -e A=b -e B=c --env A=d --env HERE --secret HF --setup make -- true",
    "launch --env-preset jax --priority high --max-retries-failure 1 --max-retries-preemption 2 -- true",
    "launch --max-task-failures 3 --scheduling-timeout 1m --timeout 2h --setup-timeout 1s --grace 5 -- true",
    "launch --lease 1d --replace-lost always --label team=vision --after train/prep --force -- true",
    "launch --tpu v5litepod-16 --slices 2 --spread -- true",
    "launch --array 0-3 --fail-fast -- true",
    "launch --replicas 3 --keep-going -- true",
    "launch --ports http,metrics --signal USR1@120 --array 0-9%4 -- true",
    "status",
    "status train/eval",
    "status train/eval --json",
    "wait train/eval train/other",
    "wait train/eval --json",
    "cancel train/eval --json",
    "cancel train/eval --reason over",
    "register-endpoint http 80 --metadata path=/x",
    "register-endpoint http --remove",
)


@pytest.mark.parametrize("line", LINES)
def test_both_programs_ask_for_the_same_and_tell_the_same(line: str, iris: Iris, task: Task) -> None:
    words = line.split()
    with OperatorThread(task.directory, operator()) as whole:
        ours = iris(*words)
    with OperatorThread(task.directory, operator()) as small:
        theirs = task.iris(*words, env={"HERE": "here it is"})
    assert small.asked == whole.asked
    assert (ours.code, ours.out.split(), ours.err) == (theirs.code, theirs.out.split(), theirs.err) or (
        json.loads(ours.out) == json.loads(theirs.out)
    )
    assert ours.code == 0
    assert list((task.directory / "outbox").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        "logs train/eval --tail 2 --stream out",
        "logs train/eval/task-0 --tail 9000 --stream err --json",
        "logs train/eval/task-1 --stream err",
        "logs train/task-x --tail 1",
        "logs train/eval/task-9",
        "logs train/eval --attempt 0 --tail 1",
        "logs train/eval/task-1 --tail 0",
        "logs train/eval --tail 0 --json",
    ],
)
def test_both_programs_show_the_same_logs(line: str, iris: Iris, task: Task) -> None:
    with OperatorThread(task.directory, operator()) as whole:
        ours = iris(*line.split())
    with OperatorThread(task.directory, operator()) as small:
        theirs = task.iris(*line.split())
    assert small.asked[-1] == whole.asked[-1]
    assert ours == theirs or json.loads(ours.out) == json.loads(theirs.out)


@pytest.mark.parametrize(
    ("line", "code", "out"),
    [
        ("launch --wait --name eval -- true", 1, "train/eval\ntrain/eval: FAILED: ä FAILED\n"),
        ("wait a/x a/late", 9, "a/x: SUCCEEDED: ä SUCCEEDED\na/late: UNSCHEDULABLE: ä UNSCHEDULABLE\n"),
        ("wait a/x a/slow --timeout 100ms", 1, "a/x: SUCCEEDED: ä SUCCEEDED\n"),
        ("cancel a/b", 0, "cancelled a/b\n"),
        ("--quiet cancel a/b", 0, ""),
        ("--quiet register-endpoint http 80", 0, ""),
        ("--quiet wait a/x a/late", 9, ""),
        ("logs train/x/task-0 --tail 1", 0, "out 19999\nerr 19999\n"),
        ("logs train/x --tail 1 --stream out", 0, "[0] out 19999\n"),
        ("logs train/x --tail 0", 0, ""),
        (
            "--quiet logs train/x/task-0 --tail all --stream err",
            0,
            "".join(f"err {n}\n" for n in range(20_000)),
        ),
    ],
)
def test_answers_become_words_and_exit_codes(line: str, code: int, out: str, iris: Iris, task: Task) -> None:
    with OperatorThread(task.directory, operator(eval="FAILED", slow="RUNNING", late="UNSCHEDULABLE")):
        found = iris(*line.split())
    assert (found.code, found.out) == (code, out)
    assert "no output" not in found.err  # the task has output, even if no line of it was requested


@pytest.mark.parametrize("program", ["whole", "small"])
def test_a_wait_for_many_jobs_asks_for_no_more_at_a_time_than_iris_accepts(
    program: str, iris: Iris, task: Task
) -> None:
    jobs = [f"train/x{number}" for number in range(MAX_WAITS + 2)]
    answer, open_waits = operator(), list[int]()

    def decide(request: Request) -> Answer | None:
        """Answer when all waits of a batch are in the outbox."""
        open_waits.append(len(list((task.directory / "outbox").glob("[0-9]*"))))
        return answer(request) if max(open_waits) >= MAX_WAITS else None

    with OperatorThread(task.directory, decide) as thread:
        found = iris("wait", *jobs) if program == "whole" else task.iris("wait", *jobs)
    assert (found.code, len(found.out.splitlines())) == (0, len(jobs))
    assert [request.job for request in thread.asked] == jobs
    assert max(open_waits) <= MAX_WAITS


def test_waiting_tells_as_json_what_it_tells_as_text(iris: Iris, task: Task) -> None:
    with OperatorThread(task.directory, operator()):
        found = json.loads(iris("wait", "a/x", "--json").out)
        launched = json.loads(iris("launch", "--name", "x", "--json", "--", "true").out)
    assert found == {
        "schema_version": 1,
        "jobs": [{"job": "a/x", "state": "SUCCEEDED", "reason": "ä SUCCEEDED"}],
        "timed_out": False,
    }
    assert launched == {"schema_version": 1, "job": "train/x", "created": True}


def test_an_endpoint_is_registered_and_removed_in_json(iris: Iris, task: Task) -> None:
    with OperatorThread(task.directory, operator()):
        registered = json.loads(iris("register-endpoint", "http", "8080", "--json").out)
        removed = json.loads(iris("register-endpoint", "http", "--remove", "--json").out)
    assert registered == {"schema_version": 1, "name": "http", "port": 8080}
    assert removed == {"schema_version": 1, "removed": True}


def test_following_prints_each_line_until_the_end(iris: Iris, task: Task) -> None:
    with OperatorThread(task.directory, operator()):
        found = iris("logs", "train/x/task-0", "--follow", "--stream", "out")
    assert found.out == "".join(f"out {number}\n" for number in range(20_000))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "train/task-0/attempt-1",
            "'train/task-0/attempt-1' is not a task id\n"
            "hint: tasks are named JOB/task-INDEX, such as train/task-0\n",
        ),
        (
            "a+b",
            "'a+b' is not a job name\n"
            "hint: use 1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or a digit\n",
        ),
    ],
)
def test_a_name_that_is_neither_a_job_nor_a_task_has_no_logs(
    name: str, error: str, iris: Iris, task: Task
) -> None:
    assert iris("logs", name) == (2, "", f"error: {error}")
    assert not (task.directory / "outbox").exists() or not list((task.directory / "outbox").iterdir())


def test_a_job_file_is_read_here(iris: Iris, task: Task) -> None:
    Path("job.yaml").write_text("command: [python, x.py]\nname: from-file\ncpu: 2\n")
    with OperatorThread(task.directory, operator()) as thread:
        assert iris("launch", "job.yaml", "--cpu", "3").out == "train/from-file\n"
    (found,) = thread.asked
    assert isinstance(found, Submit)
    assert (found.job.command, found.job.cpu) == (("python", "x.py"), 3)


def test_a_job_script_is_packed_here(iris: Iris, task: Task) -> None:
    Path("eval.sh").write_text("#!/bin/sh\n#IRIS --cpu 2 --name from-script\n")
    with OperatorThread(task.directory, operator()) as thread:
        assert iris("launch", "eval.sh", "--cpu", "3", "--", "x").out == "train/from-script\n"
    (found,) = thread.asked
    assert isinstance(found, Submit)
    assert (found.job.command, found.job.cpu) == (("./eval.sh", "x"), 3)
    assert found.job.workspace is not None
    assert (found.job.workspace.name, found.job.workspace.files) == ("eval.sh", 1)


def test_a_refusal_has_its_exit_code_and_its_hint(iris: Iris, task: Task) -> None:
    refusal = Refusal(kind="not_found", message="no job", hint="look", exit_code=ExitCode.NOT_FOUND)

    def refuse(_: Request) -> Refusal:
        return refusal

    with OperatorThread(task.directory, refuse):
        assert iris("cancel", "a/b") == (4, "", "error: no job\nhint: look\n")
        (whole, ours), theirs = iris("cancel", "a/b", "--json")[1:], task.iris("cancel", "a/b", "--json")
    assert (theirs.code, theirs.out, json.loads(theirs.err)) == (4, whole, json.loads(ours))


def test_a_job_that_was_cancelled_before_an_error_is_named(iris: Iris, task: Task) -> None:
    refusal = Refusal(kind="not_found", message="no b", exit_code=ExitCode.NOT_FOUND)

    def decide(request: Request) -> Answer:
        assert isinstance(request, Cancel)
        return refusal if request.job == "train/b" else {"job": request.job, "cancelled": True}

    with OperatorThread(task.directory, decide):
        words = ("cancel", "train/a", "train/b", "train/c")
        expected = (4, "cancelled train/a\n", "error: no b\n")
        assert (iris(*words), task.iris(*words)) == (expected, expected)
        assert task.iris("cancel", "train/b") == (4, "", "error: no b\n")


@pytest.mark.parametrize(
    "line",
    [
        "schedule --once",
        "watch --once",
        "why train",
        "history",
        "workers",
        "worker show w",
        "doctor",
        "gc",
        "log verify",
        "launch --dry-run -- true",
        "cancel train/x --prefix",
        "wait train",
        "wait train/x train",
        "logs train --follow",
        "register-endpoint http",
        "register-endpoint http 80 --metadata x",
    ],
)
def test_commands_of_the_operator_are_rejected_inside_a_task(line: str, iris: Iris, task: Task) -> None:
    found = iris(*line.split())
    assert found.code in (1, 2), found
    assert found.out == "" or "inside a task" in found.out or "task has none" in found.out, found
    assert list((task.directory / "outbox").iterdir()) == []


def test_a_state_directory_that_is_named_is_meant(
    iris: Iris, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("cluster.yaml").write_text("cluster: {name: lab}\nworkers: [{id: w, host: localhost}]\n")
    assert "outbox" not in iris("--state-dir", "state", "status").out
    assert iris("--config", "cluster.yaml", "status").code == 0
    monkeypatch.setenv("IRIS_STATE_DIR", "state")
    assert iris("status").code == 0
    assert iris("register-endpoint", "http", "80").code == 2
    assert iris("launch", "--request-id", "x", "--", "true").code == 2
    assert iris("launch", "--no-inherit-constraints", "--", "true").code == 2
    assert list((task.directory / "outbox").iterdir()) == []
