"""Arguments, environment and directories of a task arrive unchanged, and no secret is visible."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.launch_request import LaunchRequest
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.bombs import COMMANDS
from tests.support.local_transport import tools_of
from tests.support.worker_host import WorkerHost, marked

ECHO = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], open('said', 'w'))"

HOSTILE = {
    "empty": "",
    "quotes": """it's "quoted" `twice` \\' \\" '' '"'"' '\\''""",
    "expansion": "$(touch /tmp/iris-was-here) ${HOME} $HOME `id` $((1+1)) ~ * ? [a-z] {a,b} !! %s %n \\0 \\x41",
    "newlines": "one\ntwo\n\n\nthree\r\n\ttabbed\n",
    "unicode": "naïve – Grüße – 日本語 – 🧪 – \u2028 – \ufeff – e\u0301",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f",
    "end of file": "\nEOF\nEND\n}\n)\nesac\nfi\ndone\n",
    "comment": "# not a comment\n  # nor this\n    indented\n",
    "options": "-n -e -- --help",
    "separators": "a;b&c|d>e<f(g)h",
    "high bytes": "".join(map(chr, range(0x80, 0x100))),
    "long": "x'\"$\\\n" * 20_000,
}


def said(host: WorkerHost, request: LaunchRequest) -> tuple[list[str], dict[str, str], str]:
    report = host.wait(request.token)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 0), report.log_tail
    argv, env, where = json.loads((host.attempt_dir(request.token) / "work/said").read_text())
    return argv, env, where


def test_arguments_and_values_arrive_byte_for_byte(host: WorkerHost) -> None:
    env = {f"VALUE_{index}": text for index, text in enumerate(HOSTILE.values())}
    request = host.request(sys.executable, "-c", ECHO, *HOSTILE.values(), env=env)
    host.prepare(request, go=True)
    argv, seen, _ = said(host, request)
    assert argv == list(HOSTILE.values())
    assert {name: seen[name] for name in env} == env
    assert not Path("/tmp/iris-was-here").exists()


def test_names_that_shells_keep_for_themselves_arrive_too(host: WorkerHost) -> None:
    names = [
        "UID",
        "EUID",
        "PPID",
        "RANDOM",
        "SECONDS",
        "LINENO",
        "OPTIND",
        "SHLVL",
        "GROUPS",
        "BASHOPTS",
        "IFS",
        "PS1",
    ]
    names += ["BASH_ENV", "FUNCNAME", "HISTCMD", "ENV", "CDPATH", "a", "_x", "token", "dir", "start", "PWD2"]
    env = {name: f"{name} of the job" for name in names}
    request = host.request(sys.executable, "-c", ECHO, "a b", env=env)
    host.prepare(request, go=True)
    argv, seen, _ = said(host, request)
    assert {name: seen.get(name) for name in env} == env
    assert argv == ["a b"]


def test_a_task_works_in_its_own_directory_and_knows_it(host: WorkerHost) -> None:
    request = host.request(
        sys.executable, "-c", ECHO, env={"IRIS_WORKDIR": "elsewhere", "IRIS_ATTEMPT_TOKEN": "other"}
    )
    host.prepare(request, go=True)
    _, env, where = said(host, request)
    directory = str(host.attempt_dir(request.token))
    assert where == f"{directory}/work"
    assert env["IRIS_TASK_DIR"] == directory
    assert env["IRIS_WORKDIR"] == f"{directory}/work"
    assert env["IRIS_OUTPUT_DIR"] == f"{directory}/output"
    assert env["IRIS_ATTEMPT_TOKEN"] == request.token


def test_the_ranks_of_a_gang_each_get_their_own_environment(host: WorkerHost) -> None:
    requests = [
        host.request(sys.executable, "-c", ECHO, env={"IRIS_TASK_INDEX": str(rank), "IRIS_NUM_TASKS": "4"})
        for rank in range(4)
    ]
    host.prepare(*requests)
    host.go(*(request.token for request in requests))
    assert [said(host, request)[1]["IRIS_TASK_INDEX"] for request in requests] == ["0", "1", "2", "3"]


def test_a_path_of_the_job_without_any_commands_does_not_hinder_the_end(host: WorkerHost) -> None:
    report = host.ended(
        "/bin/sh", "-c", "exit 3", env={"PATH": "/nowhere", "LD_PRELOAD": "/no/such/library.so"}
    )
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)


def test_the_umask_of_the_session_is_the_tasks_and_ours_is_strict(make_host: MakeHost) -> None:
    host = make_host()
    host.probe()
    token = host.launch("sh", "-c", "umask; touch made")
    host.wait(token)
    assert host.output(token).strip() == b"0022"
    directory = host.attempt_dir(token)
    strict = [path for path in [host.root, *host.root.rglob("*")] if "work" not in path.parts]
    assert [path for path in strict if path.stat().st_mode & 0o077] == []
    assert (directory / "work/made").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_task_can_be_interrupted_as_usual(probed_host: ProbedHost, shell: str) -> None:
    """Background processes of a shell ignore SIGINT, and their children, too; `setsid -f` avoids that."""
    host = probed_host(shell)
    token = host.launch(sys.executable, "-c", "import signal; print(*map(signal.getsignal, (2, 3)))")
    host.wait(token)
    assert host.output(token).startswith(b"<built-in function default_int_handler> ")
    assert host.output(token).endswith((b" 0\n", b"Handlers.SIG_DFL\n"))


def test_nothing_secret_is_ever_in_the_arguments_of_a_process(make_host: MakeHost, tmp_path: Path) -> None:
    """Every command that the library runs records its arguments."""
    tools = tools_of("dash", tmp_path / "tools")
    for name in (*COMMANDS, "sh", "cat", "base64", "tail", "head", "od", "tr", "df", "nproc", "chmod"):
        path = shutil.which(name)
        (tools / name).unlink(missing_ok=True)
        (tools / name).write_text(
            f'#!/bin/dash\nprintf "%s\\n" {name} "$@" >>{tmp_path}/log\nexec {path} "$@"\n'
        )
        (tools / name).chmod(0o755)
    host = make_host(tools=tools)
    host.probe()
    token = host.launch("true", env={"SECRET": "canary-1", "OTHER": "canary-2"}, setup="true # canary-3")
    host.wait(token, {RemoteState.PREPARED})
    host.go(token)
    host.wait(token)
    host.stop(token)
    log = (tmp_path / "log").read_text()
    assert "mkdir" in log
    assert "canary" not in log


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": ("a\0b",)},
        {"argv": ("true", "\ud800")},
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("-c", "true")},
        {"argv": ("a=b",), "env": {"UID": "1"}},
        {"env": {"A": "x\0"}},
        {"env": {"A": "\udcff"}},
        {"env": {"": "x"}},
        {"env": {"1A": "x"}},
        {"env": {"A B": "x"}},
        {"env": {"A\n": "x"}},
        {"env": {"Ä": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"UID": "\0"}},
        {"setup": "a\0b"},
        {"setup": "\ud800"},
        {"grace": float("nan")},
        {"token": "../../etc"},
        {"token": "A" * 32},
    ],
)
def test_arguments_that_can_not_be_sent_are_rejected(
    dash_host: WorkerHost, fields: dict[str, object]
) -> None:
    request = dash_host.request("true", **fields)
    sent = len(dash_host.transport.scripts)
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        dash_host.prepare(request, go=True)
    assert len(dash_host.transport.scripts) == sent


def test_every_process_of_a_task_carries_its_marker(host: WorkerHost) -> None:
    token = host.running("sh", "-c", "sleep 1000 & sleep 1000")
    assert host.wrapper(token) in marked(token)
    host.stopped(token)
