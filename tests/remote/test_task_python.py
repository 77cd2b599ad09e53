"""The Python of the program `iris` for tasks: 3.8 or newer, with any name, in any directory."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.core.messages.requests import Wait
from iris_cli.core.model.job_fields import JOB_FIELDS
from iris_cli.remote.inside.rendering import task_program
from tests.client.operator_thread import OperatorThread
from tests.support.local_transport import only_tools
from tests.support.small_iris import Task, operator
from tests.support.waiting import PATIENCE, until

PYTHON = Path(sys.executable).resolve()

NEWER_THAN_3_8 = frozenset(
    (
        *("removeprefix", "removesuffix", "cache", "pairwise", "batched", "UTC", "StrEnum", "TypeAlias"),
        *(
            "is_relative_to",
            "bit_count",
            "randbytes",
            "file_digest",
            "zoneinfo",
            "tomllib",
            "ParamSpec",
            "strict",
        ),
    )
)
"""Names, attributes and keywords that Python 3.8 does not have."""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


def modules(text: str) -> set[str]:
    """Return the modules that a text imports."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    return {*names, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))}


def newer_names(text: str) -> set[str]:
    """Return the names in a text that Python 3.8 does not have."""
    nodes = list(ast.walk(ast.parse(text, feature_version=(3, 8))))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.arg or "" for node in nodes if isinstance(node, ast.keyword)}
    used |= {each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}
    return used & NEWER_THAN_3_8


def test_probes_of_many_hosts_may_ask_for_it_at_once() -> None:
    """In Python 3.11 `ast.parse` is not thread-safe during garbage collection."""
    asked = """
import gc, threading, time
from iris_cli.remote.inside.rendering import task_program
gc.callbacks.append(lambda *_: time.sleep(0))
gc.set_threshold(100)
start, found = threading.Barrier(8), []
def ask(depth):
    if depth:
        return ask(depth - 1)
    start.wait()
    found.append(task_program())
threads = [threading.Thread(target=ask, args=(8 * number,)) for number in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(len(found), len(set(found)))
"""
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("8 1\n", "")


def test_the_program_imports_only_the_standard_library() -> None:
    used = {name.partition(".")[0] for name in modules(task_program())}
    assert used - {"__future__"} <= sys.stdlib_module_names
    assert modules("import yaml\nfrom iris_cli.core import job") == {"yaml", "iris_cli.core"}


def test_the_program_runs_on_python_3_8() -> None:
    assert newer_names(task_program()) == set()
    assert newer_names("from functools import cache\nx.removeprefix(y)\nzip(a, b, strict=True)") == {
        *("cache", "removeprefix", "strict"),
    }
    with pytest.raises(SyntaxError):
        newer_names("match x:\n    case 1: pass")


def test_no_part_of_it_hides_a_name_of_another() -> None:
    """Its modules are joined: a second function with the same name would replace the first."""
    defined = [
        getattr(node, "targets", [getattr(node, "target", node)]) for node in ast.parse(task_program()).body
    ]
    names = [str(getattr(each, "id", "") or getattr(each, "name", "")) for found in defined for each in found]
    names = [name for name in names if name]
    assert len(names) > 50
    assert sorted(names) == sorted(set(names))


def test_without_a_python_it_prints_one_line(task: Task, tmp_path: Path) -> None:
    tools = only_tools("dash", tmp_path / "tools", ["cat"])
    (tools / "python").write_text("#!/bin/sh\necho 'Unknown option: -I' >&2\nexit 2\n")  # as Python 2 does
    (tools / "python").chmod(0o700)
    code, out, err = task.executed("status", env={"PATH": str(tools)})
    assert (code, out) == (2, "")
    assert err == "error: iris needs Python 3.8 or newer in PATH\n"


@pytest.mark.parametrize("name", ["python", "python3", f"python3.{sys.version_info.minor}"])
def test_any_name_of_python_will_do(name: str, task: Task, tmp_path: Path) -> None:
    tools = only_tools("dash", tmp_path / "tools", [])
    (tools / name).symlink_to(PYTHON)
    with OperatorThread(task.directory, operator()):
        assert task.executed("cancel", "a/b", env={"PATH": str(tools)}) == (0, "cancelled a/b\n", "")


def test_modules_and_variables_of_the_task_change_nothing(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("json", "re", "os", "typing", "argparse", "sitecustomize", "usercustomize", "start"):
        (hostile / f"{name}.py").write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(hostile)
    env = {
        "PYTHONPATH": str(hostile),
        "PYTHONSTARTUP": "start.py",
        "PYTHONHOME": "/nowhere",
        "PYTHONINSPECT": "1",
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "PYTHONWARNINGS": "error",
    }
    with OperatorThread(task.directory, operator()):
        found = task.executed("wait", "a/x", env=env)
    assert found == (0, "a/x: SUCCEEDED: ä SUCCEEDED\n", "")


def test_every_option_of_a_job_is_known_but_those_of_files_and_jobs_that_the_operator_has() -> None:
    from iris_cli.remote.inside.rendering import OPTIONS

    flags = {flag for row in JOB_FIELDS for flags in row.flags for flag in flags.split("/")}
    assert flags - set(OPTIONS) == {"--env-file", "--workdir", "--again", "--failed"}


STOPPED = '{"schema_version": 1, "error": {"message": "%s", "hint": "", "exit_code": 130}}\n'


@pytest.mark.parametrize(
    ("number", "code", "says", "options"),
    [
        (signal.SIGINT, 130, "stopped waiting for train/eval\n", ()),
        (signal.SIGINT, 130, STOPPED % "stopped waiting for train/eval", ("--json",)),
        (signal.SIGTERM, 143, "", ()),
    ],
)
def test_a_signal_takes_the_wait_back(
    number: signal.Signals, code: int, says: str, options: tuple[str, ...], task: Task
) -> None:
    process = subprocess.Popen(
        [task.program, "wait", "train/eval", *options],
        env=task.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    outbox = task.directory / "outbox"
    try:
        until(lambda: any(not each.name.startswith(".") for each in outbox.iterdir()))
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE) == ("", says)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code
    assert list(outbox.iterdir()) == []


def test_the_id_of_another_request_is_refused(task: Task) -> None:
    words = ("launch", "--request-id", "x-1", "--", "true")
    task.asked(*words)
    raw = b'{"v":1,"op":"wait","job":"train/x"}\n'
    (task.directory / "outbox/x-1").write_bytes(raw)
    assert task.iris(*words)[:2] == (2, "")
    assert (task.directory / "outbox/x-1").read_bytes() == raw


def test_one_refusal_ends_the_wait_for_several_jobs(task: Task) -> None:
    from iris_cli.core.messages.requests import Answer, Refusal, Request
    from iris_cli.errors import ExitCode

    def decide(request: Request) -> Answer | None:
        is_known = isinstance(request, Wait) and request.job != "a/y"
        no_job = Refusal(kind="not_found", message="no job", exit_code=ExitCode.NOT_FOUND)
        return None if is_known else no_job

    with OperatorThread(task.directory, decide):
        assert task.iris("wait", "a/x", "a/y") == (4, "", "error: no job\n")
    assert [*os.listdir(task.directory / "outbox"), *os.listdir(task.directory / "inbox")] == []
