"""The program `iris` for tasks: commands, requests and exit codes are those of the full iris."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.config.variable_files import read_lines
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.messages.requests import (
    Cancel,
    Refusal,
    RegisterEndpoint,
    RemoveEndpoint,
    Request,
    Status,
    Submit,
    Wait,
)
from iris_cli.core.model.job import JobRequest, Priority
from iris_cli.errors import ExitCode
from iris_cli.remote.inside.rendering import task_program
from tests.client.operator_thread import OperatorThread
from tests.remote.conftest import ProbedHost
from tests.support.local_transport import tools_of
from tests.support.small_iris import TASKS, Task, operator
from tests.support.worker_host import WorkerHost


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def strings() -> Iterator[str]:
    """Return two hundred texts with all kinds of characters that an argument can contain."""
    yield from (
        "",
        " ",
        "'",
        '"',
        "\\",
        "\n",
        "\t",
        "-n",
        "--",
        "a=b",
        "$(id)",
        "`id`",
        "*",
        "%s",
        "\\0",
        "\\u0041",
    )
    seeded = random.Random(6)
    pools = [
        [chr(code) for code in range(1, 128)],
        list("'\"\\$`!*?[]{}()<>|&;~# \t\n%=-"),
        [chr(code) for code in (*range(0x80, 0x100), 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFF)],
        [chr(code) for code in (0x10000, 0x1F680, 0x10FFFF)],
    ]
    for number in range(184):
        pool = [each for chosen in seeded.sample(pools, 1 + number % 4) for each in chosen]
        yield "".join(seeded.choices(pool, k=seeded.choice((1, 3, 10, 60))))


def test_any_text_arrives_byte_for_byte(task: Task) -> None:
    texts = list(strings())
    assert len(texts) == 200
    for first in range(0, 200, 50):
        some = texts[first : first + 50]
        variables = {f"V{number}": text for number, text in enumerate(some[:10])}
        labels = {f"l{number}": text for number, text in enumerate(some[10:20])}
        words = ["launch", "--setup", "x" + some[20]]
        words += [word for name, text in variables.items() for word in ("-e", f"{name}={text}")]
        words += [f"--label={name}={text}" for name, text in labels.items()]
        found = task.asked(*words, "--", "run", *some)
        assert found == Submit(
            job=JobRequest(command=("run", *some), setup="x" + some[20], env=variables, labels=labels)
        )


@pytest.mark.parametrize(
    "text", ["a\n", "a\n\nlast", "\ufeffa\r\nä  \\\n", "  indented\n-n\n", "a\rb\n\n", "\n", "a\r"]
)
def test_each_line_parses_like_the_operators_iris(task: Task, tmp_path: Path, text: str) -> None:
    file = tmp_path / "lines"
    file.write_bytes(text.encode())
    found = task.asked("launch", "--each-line", str(file), "--", "true")
    assert isinstance(found, Submit)
    assert found.job.each_line == read_lines(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"x" * 70_000, "lines takes more than 64KiB"),
        (b"a\nb\0\n", "lines:2: the line has a NUL byte"),
        (b"a\xff\n", "lines:1: the line is not UTF-8 text"),
        (b"", "lines has no lines"),
    ],
)
def test_a_file_without_lines_or_with_too_many_is_refused(
    task: Task, tmp_path: Path, text: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long name would be cut in the message
    Path("lines").write_bytes(text)
    code, out, err = task.iris("launch", "--each-line", "lines", "--", "true")
    assert (code, out, says in err) == (2, "", True), err


def test_a_long_argument_arrives_whole(task: Task) -> None:
    text = "naïve 🚀 'x' " * 2000
    assert task.asked("launch", "--", "run", text) == Submit(job=JobRequest(command=("run", text)))


def test_every_option_has_the_same_meaning_as_in_iris(task: Task) -> None:
    words = (
        "launch --name eval --tpu v5litepod-16 --cpu .5 --memory 1000MiB --replicas 8 --slices=2 --spread "
        "-c region=us-west4 -ctpu-worker-id>=1 --constraint=!spot --prefer pool --tolerate spot "
        "--group-by rack -e A=b -eB=c --env A=d --env HERE --secret HF --setup make --env-preset jax "
        "--priority high --max-retries-failure 1 --max-retries-preemption 2 --max-task-failures 3 "
        "--scheduling-timeout 1m --timeout 2h --setup-timeout 1s --grace 5 --lease 1d --replace-lost always "
        "--label team=vision --after train/prep --image python --force --quiet -- python eval.py --json"
    )
    found = task.asked(*words.split(), env={"HERE": "here it is"})
    assert isinstance(found, Submit)
    job = found.job
    assert job.command == ("python", "eval.py", "--json")
    assert (job.name, job.tpu, job.cpu, job.memory) == ("eval", "v5litepod-16", 0.5, 1000 << 20)
    assert (job.replicas, job.slices, job.spread, job.group_by) == (8, 2, True, "rack")
    assert job.constraints == tuple(
        map(parse_constraint, ("region=us-west4", "tpu-worker-id>=1", "!spot", "~pool"))
    )
    assert (job.tolerate, job.secrets, job.after) == (("spot",), ("HF",), ("train/prep",))
    assert job.env == {"A": "d", "B": "c", "HERE": "here it is"}
    assert (job.setup, job.env_preset, job.priority) == ("make", "jax", Priority.HIGH)
    assert (job.max_retries_failure, job.max_retries_preemption, job.max_task_failures) == (1, 2, 3)
    assert (job.scheduling_timeout, job.timeout, job.setup_timeout) == (60, 7200, 1)
    assert (job.grace, job.lease, job.replace_lost) == (5, 86400, "always")
    assert (job.labels, job.image, job.force) == ({"team": "vision"}, "python", True)


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (("launch", "--", "true"), Submit(job=JobRequest(command=("true",)))),
        (
            ("launch", "--no-inherit-constraints", "--", "true"),
            Submit(job=JobRequest(command=("true",), constraints=())),
        ),
        (("status",), Status()),
        (("status", "train/eval"), Status(job="train/eval")),  # type: ignore[arg-type]  # it is a text
        (("wait", "train/eval"), Wait(job="train/eval")),  # type: ignore[arg-type]  # it is a text
        (("cancel", "a/b", "--reason", "it's over"), Cancel(job="a/b", reason="it's over")),  # type: ignore[arg-type]  # it is a text
        (
            ("register-endpoint", "http", "80", "--metadata", "path=/ä"),
            RegisterEndpoint(name="http", port=80, metadata={"path": "/ä"}),
        ),
        (("register-endpoint", "--remove", "http"), RemoveEndpoint(name="http")),
    ],
)
def test_a_command_line_becomes_the_request(words: tuple[str, ...], sent: Request, task: Task) -> None:
    assert task.asked(*words) == sent


BAD_UTF8 = [
    b"\x80",
    b"a\xff",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    b"\xf0\x9f\x9a",
]


def test_text_that_is_not_utf8_is_rejected(task: Task) -> None:
    for raw in BAD_UTF8:
        code, out, err = task.iris(b"launch", b"--", b"echo", raw)
        assert (code, out) == (2, ""), raw
        assert "UTF-8" in err
    assert list((task.directory / "outbox").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("launch", "there is no command to run"),
        ("launch --", "there is no command to run"),
        ("launch job.yaml", "job files are not available inside a task"),
        ("launch --each-line /nowhere -- true", "/nowhere: No such file or directory"),
        ("wait a train", "train can't end before this task"),
        ("wait train/eval", "train/eval can't end before this task"),
        ("cancel", "no jobs given"),
        ("logs a --follow", "--follow is not available inside a task"),
        ("workers", "no such command inside a task: iris workers"),
        ("stauts", "did you mean 'status'?"),
        ("--state-dir s status", "--state-dir is not available inside a task"),
    ],
)
def test_invalid_values_are_rejected_with_a_message(line: str, says: str, task: Task) -> None:
    code, out, err = task.iris(*line.split(), env={"IRIS_JOB_ID": "train/eval"})
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert list((task.directory / "outbox").iterdir()) == []


def test_answers_are_read_and_printed(task: Task) -> None:
    with OperatorThread(task.directory, operator(eval="FAILED", slow="RUNNING", late="UNSCHEDULABLE")):
        assert task.iris("launch", "--name", "x", "--", "true") == (0, "train/x\n", "")
        code, out, _ = task.iris("--json", "launch", "--name", "x", "--", "true")
        assert (code, json.loads(out)) == (0, {"schema_version": 1, "job": "train/x", "created": True})
        assert task.iris("launch", "--wait", "--name", "eval", "--", "true") == (
            1,
            "train/eval\ntrain/eval: FAILED: ä FAILED\n",
            "",
        )
        assert task.iris("status", "train/x")[:2] == (
            0,
            "train/x  SUCCEEDED  ä SUCCEEDED\n"
            "train/eval/task-0  SUCCEEDED  w  done\\x1b[1m⏎ä🚀\\x0d\n"
            "train/eval/task-1  RETRYING (1 of 3)\n"
            "train/task-0  endpoint http  10.0.0.1:80\n",
        )
        code, out, _ = task.iris("status", "--json")
        assert json.loads(out)["schema_version"] == 1
        assert json.loads(out)["tasks"] == TASKS
        assert task.iris("wait", "a/x", "a/late")[:2] == (
            9,
            "a/x: SUCCEEDED: ä SUCCEEDED\na/late: UNSCHEDULABLE: ä UNSCHEDULABLE\n",
        )
        code, out, err = task.iris("wait", "a/x", "a/slow", "--timeout", "500ms", "--json")
        assert (code, json.loads(out)["timed_out"], err) == (
            1,
            True,
            "the wait timed out; no end reported for a/slow: iris status a/slow\n",
        )
        assert json.loads(out)["jobs"] == [{"job": "a/x", "state": "SUCCEEDED", "reason": "ä SUCCEEDED"}]
        assert task.iris("cancel", "a/b") == (0, "cancelled a/b\n", "")
        assert task.iris("register-endpoint", "http", "80") == (0, "", "")
        assert task.iris("logs", "train/eval/task-0", "--tail", "2")[:2] == (
            0,
            "out 19998\nout 19999\nerr 19998\nerr 19999\n",
        )
        whole = task.iris("logs", "train/eval/task-0", "--tail", "all", "--stream", "out")
        assert whole[1] == "".join(f"out {number}\n" for number in range(20_000))
    assert list((task.directory / "outbox").iterdir()) == []
    assert list((task.directory / "inbox").iterdir()) == []


def test_a_refusal_has_its_exit_code_and_its_hint(task: Task) -> None:
    refusal = Refusal(
        kind="not_found", message="no job 'ä\x1b[2J'", hint='try "b"', exit_code=ExitCode.NOT_FOUND
    )
    with OperatorThread(task.directory, lambda _: refusal):
        code, out, err = task.iris("cancel", "a/b")
    assert (code, out) == (4, "")
    assert err == "error: no job 'ä\\x1b[2J'\nhint: try \"b\"\n"


NOTHING = b'{"v":1,"ok":true,"result":{}}'


def test_an_answer_that_cannot_be_read_is_an_error(task: Task) -> None:
    for raw in (b"", b"{", b'{"v":1,"ok":tru', b'{"v":1,"ok":true,"result":{"job":"a', b"[[[", NOTHING):
        (task.directory / "inbox/again").write_bytes(raw)
        code, out, err = task.iris("launch", "--request-id", "again", "--", "true")
        assert (code, out) == (1, ""), raw
        assert "answer" in err


def test_the_same_request_id_gets_the_first_answer_again(task: Task) -> None:
    words = ("launch", "--name", "x", "--request-id", "x-1", "--", "true")
    with OperatorThread(task.directory, operator()) as thread:
        assert task.iris(*words)[:2] == (0, "train/x\n")
    assert task.iris(*words)[:2] == (0, "train/x\n")  # no polls any more
    assert list(thread.done) == ["x-1"]


def test_a_full_disk_is_reported(task: Task) -> None:
    if os.geteuid() == 0:
        task.directory.joinpath("outbox").rmdir()
        task.directory.joinpath("outbox").symlink_to("/proc/self/fdinfo")  # accepts no files
    else:
        task.directory.joinpath("outbox").chmod(0o500)
    code, out, _ = task.iris("launch", "--", "true")
    assert (code, out) == (10, "")


def test_outside_a_task_it_is_an_error(task: Task) -> None:
    code, _, err = task.iris("launch", "--", "true", env={"IRIS_TASK_DIR": ""})
    assert code == 2
    assert "inside its task" in err or "inside a task" in err


def test_a_probe_leaves_it_on_the_host_and_tasks_find_it(host: WorkerHost) -> None:
    program = host.root / "bin/iris"
    assert program.read_text() == task_program() + "\n"
    assert stat.S_IMODE(program.stat().st_mode) == 0o700
    token = host.launch("sh", "-c", "command -v iris; iris --help; iris launch")
    host.wait(token)
    said = (host.attempt_dir(token) / "out").read_text()
    found, _, rest = said.partition("\n")
    assert found == shutil.which("iris") or found == str(program)
    if found == str(program):
        assert rest.startswith("usage: iris launch")
        assert (host.attempt_dir(token) / "err").read_text().startswith("error: there is no command to run")


def test_the_program_is_rewritten_only_if_it_differs(dash_host: WorkerHost) -> None:
    program = dash_host.root / "bin/iris"
    before = program.stat().st_ino
    dash_host.probe()
    assert program.stat().st_ino == before
    program.write_text("#!/bin/sh\nexit 3\n")
    dash_host.probe()
    assert program.read_text() == task_program() + "\n"
    assert [path.name for path in program.parent.iterdir()] == ["iris"]


def test_an_installed_iris_precedes_it_in_path(probed_host: ProbedHost, tmp_path: Path) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    own = tools / "iris"
    own.write_text("#!/bin/sh\necho mine\n")
    own.chmod(0o755)
    host = probed_host("dash", tools=tools)
    token = host.launch("iris")
    host.wait(token)
    assert (host.attempt_dir(token) / "out").read_text() == "mine\n"


def test_no_launch_contains_the_program(dash_host: WorkerHost) -> None:
    dash_host.probe()
    dash_host.wait(dash_host.launch("true"))
    *_, probe, launch, _ = (
        [script for script in dash_host.transport.scripts if b"print_probe" in script]
        + [script for script in dash_host.transport.scripts if b"await_starts" in script][:1]
        + [b""]
    )
    assert b"inside a task" in probe
    assert b"inside a task" not in launch
