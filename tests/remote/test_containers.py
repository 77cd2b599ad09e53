"""Programs in containers: they start, end and are stopped as without one, and leave no container."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, Silence
from iris_cli.core.model.job import EarlySignal
from iris_cli.remote.command_calls import CommandEnd, CommandRequest
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.containers import (
    IMAGE,
    NOBODY,
    STARTED,
    Podman,
    as_user,
    command_lines,
    is_gone,
    launched,
    podman_with_image,
    running,
)
from tests.support.devices import Devices
from tests.support.local_transport import tools_of
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, command_line, kill, marked

CANARY = "canary-7d1f"
OF_CLIENTS = (
    *("STORAGE_OPTS", "STORAGE_DRIVER", "REGISTRY_AUTH_FILE", "GOMEMLIMIT", "NOTIFY_SOCKET", "LISTEN_FDS"),
    *("LISTEN_PID", "PODMAN_USERNS", "_CONTAINERS_USERNS_CONFIGURED", "DOCKER_DEFAULT_PLATFORM"),
)
"""Variables of a program by which a runtime's client would fail or change."""


@pytest.fixture
def host(podman: Podman, host_shell: str, probed_host: ProbedHost) -> WorkerHost:
    return probed_host(host_shell, env=podman.env)


def test_output_files_and_exit_code_are_those_of_the_program(host: WorkerHost, podman: Podman) -> None:
    script = 'echo out; echo err >&2; echo "$PWD" >made; cat made >"$IRIS_OUTPUT_DIR/result"; exit 42'
    token = launched(host, "sh", "-c", script)
    report = host.wait(token)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 42, "")
    assert is_gone(podman, token)
    assert (host.output(token), host.output(token, "err")) == (b"out\n", b"err\n")
    directory = host.attempt_dir(token)
    assert (directory / "work/made").read_text() == f"{directory}/work\n"
    assert (directory / "output/result").stat().st_uid == os.getuid()


def test_variables_arrive_byte_for_byte_and_a_command_of_the_operator_has_its_own(
    host: WorkerHost, podman: Podman
) -> None:
    env = {
        "TOKEN": f"{CANARY} \n'$HOME'\t# \"",
        "EMPTY": "",
        "PATH": "/bin:/opt/of the image",
        "LD_LIBRARY_PATH": "/opt/lib",
        **dict.fromkeys(OF_CLIENTS, "mine/x"),
        **dict.fromkeys(("user", "dir", "token", "runtime", "image", "container_id"), "mine"),
    }
    token = running(host, "env -0 >seen; echo ready; sleep 1000", env=env)
    got = dict(
        line.split("=", 1)
        for line in (host.attempt_dir(token) / "work/seen").read_text().split("\0")
        if "=" in line
    )
    assert {name: got.get(name) for name in env} == env
    assert got["IRIS_WORKDIR"] == f"{host.attempt_dir(token)}/work"
    assert not [words for words in command_lines() if CANARY.encode() in words]
    said = json.loads(podman("inspect", f"iris-{token}"))[0]
    in_the_variables = json.dumps(said["Config"].pop("Env"))
    assert CANARY in in_the_variables
    assert CANARY not in json.dumps(said)
    assert host.secrets(token) == []

    request = beside(host, token, 'echo "$LR|$TOKEN|$PWD"; ls /; exit 5', env={"LR": "1e-3", "TOKEN": ""})
    end = host.runner.commands.run(host.target, request)
    assert isinstance(end, CommandEnd)
    lines = end.output.decode().splitlines()
    assert (end.exit_code, lines[0]) == (5, f"1e-3||{host.attempt_dir(token)}/work")
    assert "var" not in lines  # all workers have it
    assert host.stopped(token, grace=0).state is RemoteState.STOPPED
    late = host.runner.commands.run(host.target, request)
    assert isinstance(late, CommandEnd)
    assert (late.exit_code, late.output) == (1, b"iris: the container of this task is not running\n")


def beside(host: WorkerHost, attempt: Token, script: str, env: dict[str, str]) -> CommandRequest:
    """A command of the operator in the container of an attempt."""
    argv = ("sh", "-c", script)
    return CommandRequest(token=Token("c" * 32), argv=argv, env=env, attempt=attempt, image=IMAGE)


@pytest.mark.soak
def test_a_stop_ends_a_program_that_obeys_signals_at_once(host: WorkerHost, podman: Podman) -> None:
    token = running(host, "echo ready; exec sleep 1000")
    assert host.stopped(token, grace=1000).state is RemoteState.STOPPED
    assert is_gone(podman, token)


def test_a_program_hears_one_signal_and_has_its_grace(host: WorkerHost, podman: Podman) -> None:
    script = 'trap "echo heard; sleep 0.5; echo saved; exit 7" TERM; echo ready; while :; do sleep 0.1; done'
    token = running(host, script)
    assert host.stopped(token, grace=1000).state is RemoteState.STOPPED
    assert host.output(token) == b"ready\nheard\nsaved\n"
    assert is_gone(podman, token)


def test_a_program_that_ignores_the_signal_is_killed(host: WorkerHost, podman: Podman) -> None:
    token = running(host, 'trap "" TERM; echo ready; while :; do sleep 1; done')
    assert host.stopped(token, grace=0.3).state is RemoteState.STOPPED
    assert is_gone(podman, token)


def test_a_time_limit_and_a_lease_end_the_container(host: WorkerHost, podman: Podman) -> None:
    request = host.request("sleep", "1000", image=IMAGE, timeout=1, grace=0)
    leased = host.request("sleep", "1000", image=IMAGE, lease=2, grace=0)
    host.prepare(request, leased)
    host.wait_for_all([request.token, leased.token], STARTED)
    host.go(request.token, leased.token)
    report, ended = host.wait_for_all([request.token, leased.token], renew=False)
    assert (report.state, report.cause) == (RemoteState.EXITED, "timeout")
    assert (ended.state, ended.cause) == (RemoteState.CANCELLED, "lease")
    assert is_gone(podman, request.token)
    assert is_gone(podman, leased.token)


def test_a_program_can_not_hide_its_container(host: WorkerHost, podman: Podman) -> None:
    """It removes every file that it can reach; processes that have left its session, and its environment, go on."""
    one, other = str(5000 + os.getpid()), str(9_000_000 + os.getpid())  # other tests use sleeps, too
    leave = f"setsid sleep {one} & setsid env -i /bin/sleep {other} & sleep 0.5"
    script = f'{leave}; /bin/busybox rm -rf "$IRIS_TASK_DIR"/*; exit 3'
    token = launched(host, "sh", "-c", script, grace=0)
    host.wait(token)
    assert is_gone(podman, token)
    assert not {f"sleep\0{one}\0".encode(), f"/bin/sleep\0{other}\0".encode()} & command_lines()


def test_a_stop_while_the_container_is_created_leaves_nothing(
    podman: Podman, probed_host: ProbedHost, tmp_path: Path
) -> None:
    """A client that is killed then would leave a started container that its runtime has forgotten."""
    slow, settings = tmp_path / "slow", Path(podman.env["CONTAINERS_CONF"]).read_text()
    (runtime,) = re.findall('runtime = "(.*)"', settings)
    wait = f"touch {slow}.reached; while [ ! -e {slow}.gate ]; do sleep 0.1; done"
    slow.write_text(f'#!/bin/sh\ncase " $* " in *" create "*) {wait} ;; esac\nexec {runtime} "$@"\n')
    slow.chmod(0o755)
    (tmp_path / "conf").write_text(settings.replace(f'"{runtime}"', f'"{slow}"'))
    host = probed_host(env=podman.env | {"CONTAINERS_CONF": f"{tmp_path}/conf"})
    token = launched(host, "sleep", "1000")
    until(Path(f"{slow}.reached").exists)
    host.stop(token, grace=0)
    Path(f"{slow}.gate").touch()
    assert host.wait(token).state is RemoteState.STOPPED
    assert is_gone(podman, token)


def test_a_stop_ends_the_container_of_a_killed_wrapper(host: WorkerHost, podman: Podman) -> None:
    token = running(host, "echo ready; exec sleep 1000")
    kill(host.wrapper(token))
    host.wait(token, {RemoteState.ORPHANED})
    assert f"iris-{token}" in podman.containers()
    assert host.stopped(token).state is RemoteState.STOPPED
    assert is_gone(podman, token)


def test_an_attempt_is_lost_only_when_its_container_is_removed(
    podman: Podman, probed_host: ProbedHost, tmp_path: Path
) -> None:
    """All its processes were killed; podman keeps the exited container, and at first does not answer."""
    tools = tools_of("dash", tmp_path / "tools")
    host = probed_host(env=podman.env, tools=tools)
    token = running(host, "echo ready; exec sleep 1000")
    fake(tools, "podman", "*) exit 125 ;;")
    for pid in (host.wrapper(token), *marked(token)):
        kill(pid)
    until(lambda: not marked(token))
    assert host.state(token) is RemoteState.ORPHANED
    (tools / "podman").unlink()
    assert f"iris-{token}" in podman.containers()
    assert host.wait(token).state is RemoteState.LOST
    assert is_gone(podman, token)


@pytest.mark.soak
def test_a_reap_removes_a_container_that_was_never_started(host: WorkerHost, podman: Podman) -> None:
    token = launched(host, "sh", "-c", "exit 1")
    host.wait(token)
    (host.root / "c" / token).write_text("podman 0:0\n")
    podman("create", "--name", f"iris-{token}", IMAGE, "sh")
    until(lambda: host.reaped(token) == {token})
    assert is_gone(podman, token)


@pytest.mark.soak
def test_a_killed_program_is_reported_by_its_exit_code(host: WorkerHost) -> None:
    report = host.wait(launched(host, "sh", "-c", "kill -9 $$"))
    assert (report.exit_code, report.cause) == (137, "")


@pytest.mark.soak
def test_a_missing_image_is_told_by_the_runtime(host: WorkerHost) -> None:
    report = host.wait(launched(host, "true", image="localhost:1/iris/nowhere:1"))
    assert (report.state, report.cause, report.exit_code) == (RemoteState.NOSTART, "setup", 1)
    lines = report.log_tail.splitlines()
    assert lines[0] == "iris: not started: podman pull localhost:1/iris/nowhere:1 failed:"
    assert lines[-1].startswith("Error: initializing source docker://localhost:1/iris/nowhere:1")


@pytest.mark.soak
def test_stacks_show_the_program_in_the_container(host: WorkerHost) -> None:
    token = running(host, "echo ready; exec sleep 1000")
    answer = host.runner.stacks.read(host.target, [token])
    assert not isinstance(answer, Silence)
    (programs,) = answer
    shown = {each.command: each.threads for each in programs.programs}
    assert [thread.state for thread in shown["sleep 1000"]] == ["S"]
    assert host.stopped(token, grace=0).state is RemoteState.STOPPED


def test_a_pull_that_takes_too_long_is_reported(probed_host: ProbedHost, tmp_path: Path) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    host = probed_host(tools=tools)
    fake(tools, "podman", "image) exit 1 ;; pull) sleep 1000 ;;")
    report = host.wait(launched(host, "true", image="hub/train:1", setup_timeout=1))
    assert (report.state, report.cause) == (RemoteState.NOSTART, "setup")
    said = "iris: not started: the set-up (pull of hub/train:1) took longer than 1 s (--setup-timeout)\n"
    assert report.log_tail.endswith(said)


def test_a_stop_ends_a_pull(podman: Podman, probed_host: ProbedHost, tmp_path: Path) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    host = probed_host(tools=tools)
    fake(tools, "podman", "image) exit 1 ;; pull) sleep 1000 ;;")
    request = host.request("true", image="a", env={})
    host.prepare(request)
    until(lambda: any("pull" in command_line(pid) for pid in marked(request.token)))
    assert host.stopped(request.token).state is RemoteState.STOPPED
    assert not marked(request.token)


def test_a_worker_without_a_usable_runtime_reports_why(
    host_shell: str, probed_host: ProbedHost, tmp_path: Path
) -> None:
    tools = tools_of(host_shell, tmp_path / "tools")
    fake(
        tools,
        "docker",
        'info) echo "permission denied while trying to connect to /run/docker.sock" >&2; exit 1 ;;',
    )
    fake(tools, "podman", "*) exit 3 ;;")
    host = probed_host(host_shell, tools=tools)
    report = host.wait(launched(host, "true", image="a"))
    assert (report.state, report.cause) == (RemoteState.NOSTART, "setup")
    assert report.log_tail == (
        "iris: not started: no container runtime can be used:"
        " docker: permission denied while trying to connect to /run/docker.sock; podman: no answer\n"
    )


@pytest.mark.parametrize("security", ["name=seccomp,profile=builtin", "name=seccomp name=rootless"])
def test_docker_gets_the_user_the_devices_and_names_of_variables(
    security: str, probed_host: ProbedHost, tmp_path: Path
) -> None:
    devices = Devices(tmp_path)
    tools = tools_of("dash", tmp_path / "tools")
    fake_docker(tools, tmp_path, security)
    host = probed_host(tools=tools, paths=devices.paths)
    settings = {"exclusive": True, "gpus": True, "env": {"TOKEN": CANARY, "HOME": "/data"}}
    token = launched(host, "sh", "-c", 'echo "$TOKEN"', image="lab/a:1", **settings)
    assert host.wait(token).exit_code == 0
    assert host.output(token) == f"{CANARY}\n".encode()
    words = (tmp_path / "run").read_text().splitlines()
    pairs = list(pairwise(words))
    rootless = "rootless" in security
    user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"
    assert ("--user", user) in pairs
    given = [path for option, path in pairs if option == "--device"]
    assert given == [*devices.chips, f"{devices.dev}/vfio/vfio"]
    assert ("--gpus", "all") in pairs
    assert {("--network", "host"), ("--pid", "host"), ("--pull", "never")} <= set(pairs)
    variables = [name for option, name in pairs if option == "-e"]
    assert "TOKEN" in variables
    assert variables.count("HOME=/data") == 1
    assert words[-4:] == ["lab/a:1", "sh", "-c", 'echo "$TOKEN"']
    assert CANARY not in " ".join(words)


@pytest.mark.soak
def test_a_command_that_must_end_leaves_nothing_in_the_container(host: WorkerHost) -> None:
    token = running(host, "echo ready; exec sleep 1000")
    beside = Token("d" * 32)
    end = host.runner.commands.run(
        host.target,
        CommandRequest(token=beside, argv=("sleep", "1003"), env={}, attempt=token, image=IMAGE, timeout=1.0),
    )
    assert isinstance(end, CommandEnd)
    assert end.timed_out
    assert not marked(beside)
    assert host.state(token) is RemoteState.RUNNING
    assert host.stopped(token).state is RemoteState.STOPPED


@pytest.mark.soak
def test_an_early_signal_reaches_only_the_program(host: WorkerHost) -> None:
    script = 'trap "echo warned; exit 4" USR1; echo ready; while :; do sleep 0.1; done'
    token = running(host, script, timeout=1000, signal=EarlySignal("USR1", 995))
    assert host.wait(token).exit_code == 4
    assert host.output(token) == b"ready\nwarned\n"
    assert b"SIGUSR1 to 1 process(es)" in host.output(token, "err")


@pytest.mark.soak
@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_an_ordinary_user_has_containers_without_a_password(make_host: MakeHost) -> None:
    """Files belong to the user, and a stop finds the container of a killed wrapper."""
    with TemporaryDirectory() as place:
        directory = Path(place)
        directory.chmod(0o755)
        if subprocess.run([*as_user(NOBODY), "ls", place], capture_output=True, check=False).returncode:
            pytest.skip("an ordinary user can't reach the directory for temporary files")
        (directory / "store").mkdir()
        podman = podman_with_image(directory / "store", NOBODY)
        tools = directory / "tools"
        tools.mkdir()
        become = f'[ "$(id -u)" != 0 ] || exec {" ".join(as_user(NOBODY))} dash "$@"'
        (tools / "sh").write_text(f'#!{shutil.which("dash")}\n{become}\nexec dash "$@"\n')
        (tools / "sh").chmod(0o755)
        host = make_host(tools=tools, env=podman.env, name=str(podman.directory))
        host.probe()
        token = launched(host, "sh", "-c", "echo made >made; exit 3")
        assert host.wait(token).exit_code == 3
        assert (host.attempt_dir(token) / "work/made").stat().st_uid == NOBODY
        token = running(host, "echo ready; exec sleep 1000")
        kill(host.wrapper(token))
        until(lambda: host.state(token) is RemoteState.ORPHANED)
        assert host.stopped(token).state is RemoteState.STOPPED
        assert is_gone(podman, token)
        podman.close()


def fake(tools: Path, name: str, cases: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\ncase $1 in\n{cases}\nesac\n")
    (tools / name).chmod(0o755)


def fake_docker(tools: Path, directory: Path, security: str) -> None:
    """A docker that records the arguments of `run`, and runs the command on this machine."""
    run = f'run) printf "%s\\n" "$@" >{directory}/run; while [ "$1" != lab/a:1 ]; do shift; done; shift; exec "$@" ;;'
    fake(tools, "docker", f'info) echo "server=28.2.2 [{security}]" ;;\n{run}')
