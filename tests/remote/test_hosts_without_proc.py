"""Hosts without /proc, such as a laptop with macOS: the same protocol with ps, sysctl and without setsid."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.command_calls import CommandEnd, CommandRequest
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import ProbedHost
from tests.support.local_transport import REQUIRED, only_tools
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, at_once, is_alive, kill, marked, pids_in, until_gone

COMMANDS = [*REQUIRED, "fold", "getconf", "kill", "link", "ps", "perl"]

SYSCTL = """#!/bin/sh
case $2 in
kern.boottime) echo "{ sec = 1700000000, usec = 12 } Tue Nov 14 22:13:20 2023" ;;
hw.memsize) echo 17179869184 ;;
hw.logicalcpu) echo 8 ;;
*) exit 1 ;;
esac
"""


@pytest.fixture(params=["dash", pytest.param("bash", marks=pytest.mark.soak)])
def laptop(request: pytest.FixtureRequest, probed_host: ProbedHost, tmp_path: Path) -> WorkerHost:
    """A probed host without /proc and setsid, but with perl, as on macOS."""
    if subprocess.run(["ps", "-o", "lstart=", "-p", "1"], capture_output=True).returncode != 0:
        pytest.skip("ps here doesn't know start times")
    tools = only_tools(request.param, tmp_path / "tools", COMMANDS)
    (tools / "sysctl").write_text(SYSCTL)
    (tools / "sysctl").chmod(0o755)
    nowhere = str(tmp_path / "nowhere")
    paths = HostPaths(proc=nowhere, sys=nowhere, mounts=nowhere)
    host = probed_host(request.param, tools=tools, env={"PATH": str(tools)}, paths=paths)
    host.boot_id = "btime-1700000000"
    return host


def test_a_probe_queries_sysctl(laptop: WorkerHost) -> None:
    report = laptop.probe()
    assert report.boot_id == "btime-1700000000"
    assert report.memory == 16 << 30
    assert report.uptime > 0
    assert report.warnings == ()


def test_an_attempt_runs_and_ends(laptop: WorkerHost) -> None:
    report = laptop.ended("sh", "-c", "echo hello; exit 3")
    assert (report.state, report.exit_code, report.log_tail) == (RemoteState.EXITED, 3, "hello\n")


def test_a_task_and_its_children_are_stopped(laptop: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    token = laptop.running(
        "sh", "-c", 'trap "" TERM; echo $$ >>"$0"; sleep 1000 & echo $! >>"$0"; wait', str(pids)
    )
    until(lambda: len(pids_in(pids)) == 2)
    wrapper = laptop.wrapper(token)
    assert os.getpgid(pids_in(pids)[1]) == wrapper
    assert laptop.stopped(token, grace=1).state is RemoteState.STOPPED
    assert not any(is_alive(pid) for pid in [*pids_in(pids), wrapper])


def test_a_prepared_and_stopped_attempt_never_starts(laptop: WorkerHost, tmp_path: Path) -> None:
    request = laptop.request("touch", str(tmp_path / "ran"))
    laptop.prepare(request)
    assert laptop.stopped(request.token).state is RemoteState.STOPPED
    laptop.go(request.token)
    absent = laptop.request("touch", str(tmp_path / "ran"))
    assert laptop.stop(absent.token).state is RemoteState.STOPPED
    laptop.prepare(absent, go=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.soak
def test_launches_at_once_start_it_once(laptop: WorkerHost, tmp_path: Path) -> None:
    request = laptop.request("sh", "-c", 'echo $$ >>"$0"', str(tmp_path / "starts"))
    assert at_once([lambda: laptop.prepare(request, go=True)] * 8) == []
    assert laptop.wait(request.token).state is RemoteState.EXITED
    assert len(pids_in(tmp_path / "starts")) == 1


def test_a_bystander_with_the_wrappers_number_is_not_signalled(laptop: WorkerHost) -> None:
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        token = laptop.running("sleep", "1000")
        kill(laptop.wrapper(token))
        line = f"{bystander.pid} Tue_Nov_14_22:13:21_2023 {laptop.boot_id}\n"
        (laptop.attempt_dir(token) / "pid").write_text(line)
        laptop.stopped(token, grace=0)
        assert is_alive(bystander.pid)
        assert not marked(token)
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.soak
def test_a_dead_wrapper_leaves_an_orphan_that_can_be_stopped(laptop: WorkerHost) -> None:
    token = laptop.running("sleep", "1000")
    kill(laptop.wrapper(token))
    laptop.wait(token, {RemoteState.ORPHANED})
    assert laptop.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


def test_the_setup_and_the_time_limit_work(laptop: WorkerHost) -> None:
    request = laptop.request("sleep", "1000", setup="echo set up", timeout=1.0, grace=5.0)
    laptop.prepare(request)
    laptop.wait(request.token, {RemoteState.PREPARED})
    laptop.go(request.token)
    report = laptop.wait(request.token)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 143, "timeout")
    assert laptop.output(request.token) == b"set up\n"


def test_without_perl_an_attempt_still_runs_and_stops(laptop: WorkerHost) -> None:
    (laptop.tools / "perl").unlink()
    assert shutil.which("setsid", path=str(laptop.tools)) is None
    assert laptop.ended("sh", "-c", "exit 4").exit_code == 4
    token = laptop.running("sleep", "1000")
    assert laptop.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


@pytest.mark.soak
def test_a_lease_expires_without_proc_too(laptop: WorkerHost) -> None:
    token = laptop.launch("sleep", "1000", lease=2.0)
    report = laptop.wait(token, renew=False)
    assert (report.state, report.cause) == (RemoteState.CANCELLED, "lease")
    until_gone(token)


@pytest.mark.soak
def test_an_ended_attempt_can_be_reaped_without_proc_too(laptop: WorkerHost) -> None:
    token, running = laptop.launch("touch", "made"), laptop.running("sleep", "1000")
    laptop.wait(token)
    until(lambda: laptop.reaped(token, running) == {token})
    assert sorted(path.name for path in laptop.attempt_dir(token).iterdir()) == ["cancel", "x.0"]
    assert laptop.state(running) is RemoteState.RUNNING


def test_the_reader_of_the_output_is_no_process_of_the_command(laptop: WorkerHost, tmp_path: Path) -> None:
    """Output that it has not read yet would be lost with it."""
    head, signalled = laptop.tools / "head", tmp_path / "signalled"
    program = head.readlink()
    head.unlink()
    head.write_text(f'#!/bin/sh\ntrap ": >{signalled}" TERM\nsleep 1\nexec {program} "$@"\n')
    head.chmod(0o755)
    request = CommandRequest(token=Token("c" * 32), argv=("sh", "-c", "echo hello; exit 3"), env={})
    end = laptop.runner.commands.run(laptop.target, request)
    assert isinstance(end, CommandEnd)
    assert end.exit_code == 3
    assert not signalled.exists()
