"""The holder step of a node of a Slurm job: what calls hand over to it starts once, and outlives them.

Slurm itself is in test_srun.py. These tests run the holder as a step would, in each shell.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.messages.observations import RemoteState, Silence, SilenceKind, UnwedgeReport
from iris_cli.remote.worker_script import holder_script, holder_text, quote
from tests.remote.conftest import MakeHost
from tests.support.devices import Devices
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, command_line, is_alive, marked

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURMD_NODENAME": "n3",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NODELIST": "n[0-3]",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "PMI_RANK": "0",
    "PMIX_SERVER_URI": "x",
}

HOSTILE = """/tmp/it's "quoted" $(id) `id` \\ %h"""

Hold = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def node(host_shell: str, make_host: MakeHost) -> WorkerHost:
    """A worker that is a node of Slurm job 7, not probed yet."""
    return as_node(make_host(host_shell, remote_dir="~/iris dir"))


def as_node(host: WorkerHost) -> WorkerHost:
    connection = replace(host.target.connection, allocation="7", node="n3")
    host.target = replace(host.target, connection=connection)
    return host


@pytest.fixture
def hold(node: WorkerHost) -> Iterator[Hold]:
    """Starts a holder; it takes requests on return."""
    yield from holders_of(node)


def holders_of(node: WorkerHost) -> Iterator[Hold]:
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = holder(node, str(node.transport.home / "iris dir"))
        started.append(process)
        until(lambda: named(node) == process.pid, lambda: process.poll())
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(PATIENCE)


def holder(node: WorkerHost, directory: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", "-c", f"{holder_text()}hold {quote(directory)}"],
        env={**node.transport.env, **SLURM},
        executable=str(node.tools / "sh"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def named(node: WorkerHost) -> int | None:
    """The holder that calls find."""
    file = node.transport.home / "iris dir/holder.7.n3/pid"
    return int(file.read_text().split()[0]) if file.exists() else None


def parent(pid: int) -> int:
    return int(Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2].split()[1])


def stopped(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE)


def test_a_task_is_started_by_the_holder_and_knows_nothing_of_its_step(node: WorkerHost, hold: Hold) -> None:
    holder = hold()
    node.probe()
    token = node.running("sh", "-c", 'env; ls -l "/proc/$$/fd"; exec sleep 1000')
    told = node.output(token).decode().splitlines()
    variables = {line.partition("=")[0] for line in told if line.startswith(("SLURM", "PMI"))}
    assert variables == {"SLURM_CONF", "SLURM_JOB_ID"}
    assert not any("holder.7.n3" in line for line in told)  # the pipe
    session = os.getsid(node.wrapper(token))
    assert session == node.wrapper(token)
    stopped(holder)
    assert node.state(token) is RemoteState.RUNNING
    assert node.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


def test_without_a_holder_nothing_starts_and_a_later_one_starts_it_once(
    node: WorkerHost, hold: Hold, tmp_path: Path
) -> None:
    silence = node.runner.probe(node.target)
    assert isinstance(silence, Silence)
    assert "no holder step runs on this node" in silence.detail
    assert (silence.kind, silence.hint) == (SilenceKind.PROTOCOL, "")
    first = hold()
    node.probe()
    stopped(first)
    request = node.request("sh", "-c", f"echo started >>{tmp_path}/starts")
    for _ in range(2):
        (report,) = node.prepare(request, go=True)
        assert report.state is RemoteState.PREPARED
    assert not marked(request.token)
    hold()
    assert node.state(request.token) is RemoteState.PREPARED
    for _ in range(3):
        node.go(request.token)
    assert node.wait(request.token).exit_code == 0
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_set_up_waits_for_a_holder_too(node: WorkerHost, hold: Hold) -> None:
    first = hold()
    node.probe()
    stopped(first)
    request = node.request("true", setup="echo set up")
    assert node.prepare(request, go=True)[0].state is RemoteState.PREPARING
    hold()
    node.prepare(request)
    node.wait(request.token, {RemoteState.PREPARED})
    node.go(request.token)
    assert node.wait(request.token).exit_code == 0
    assert node.output(request.token) == b"set up\n"


def test_a_request_to_a_holder_that_is_stopped_blocks_no_call(node: WorkerHost, hold: Hold) -> None:
    process = hold()
    node.probe()
    os.kill(process.pid, signal.SIGSTOP)
    request = node.request("true")
    (report,) = node.prepare(request, go=True)
    assert report.state is RemoteState.PREPARED
    os.kill(process.pid, signal.SIGCONT)
    assert node.wait(request.token).exit_code == 0


def test_the_end_of_a_grace_period_is_kept_by_the_holder(node: WorkerHost, hold: Hold) -> None:
    holder = hold()
    node.probe()
    token = node.stubborn()
    assert node.stop(token, grace=1000.0).state is RemoteState.STOPPING
    stopper = int(next(node.attempt_dir(token).glob("stop.run.*")).name.split(".")[4])
    assert command_line(stopper)[1].rpartition("/")[2].startswith("last.")  # what the holder was asked for
    assert not list(node.attempt_dir(token).glob("last.*"))  # it has read it
    stopped(holder)
    assert is_alive(stopper)
    assert node.stopped(token, grace=0.1).state is RemoteState.STOPPED
    assert not marked(token)


def test_a_stop_needs_no_holder(node: WorkerHost, hold: Hold) -> None:
    holder = hold()
    node.probe()
    token = node.stubborn()
    stopped(holder)
    assert node.stopped(token, grace=0.1).state is RemoteState.STOPPED
    assert not list(node.attempt_dir(token).glob("last.*"))
    assert not marked(token)


def test_what_an_operator_clears_is_ended_by_the_holder(
    make_host: MakeHost, tmp_path: Path, host_shell: str
) -> None:
    devices = Devices(tmp_path)
    node = as_node(make_host(host_shell, remote_dir="~/iris dir", paths=devices.paths))
    holders = holders_of(node)
    next(holders)()
    node.probe()
    pid = devices.hold()
    report = node.runner.unwedge(node.target, keep=())
    assert isinstance(report, UnwedgeReport)
    assert [each.pid for each in report.holders] == [pid]
    node.runner.unwedge(node.target, keep=(), clear=report.holders, grace=0.1)
    until(lambda: not is_alive(pid))
    assert not list((node.transport.home / "iris dir").glob("**/last.*"))
    devices.release()
    next(holders, None)


def test_a_directory_that_another_user_can_have_made_is_refused(node: WorkerHost, tmp_path: Path) -> None:
    open_to_all = tmp_path / "tmp"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    (open_to_all / "elsewhere").mkdir()
    (open_to_all / "iris-7").symlink_to(open_to_all / "elsewhere")
    process = holder(node, str(open_to_all / "iris-7/job"))
    assert "another user may control" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode
    (open_to_all / "iris-8").mkdir()
    if os.geteuid() == 0:
        (open_to_all / "iris-8/job").mkdir()
        os.chown(open_to_all / "iris-8", 65534, 65534)
        process = holder(node, str(open_to_all / "iris-8/job"))
        assert "another user may control" in process.communicate(timeout=PATIENCE)[1]
        assert process.returncode


def test_the_lines_of_a_batch_script_are_plain_text_to_each_shell(node: WorkerHost, tmp_path: Path) -> None:
    """Slurm's commands are stand-ins that write down how they are called."""
    tools = tmp_path / "slurm"
    tools.mkdir()
    (tools / "scontrol").write_text('#!/bin/sh\nprintf "%s\\n" n0 n1\n')
    (tools / "srun").write_text(
        "#!/bin/sh\nfor word; do case $word in --nodelist=*) node=$word ;; esac; done\n"
        f'printf "%s" "$word" >"{tmp_path}/$node"\nexec sleep 9\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o700)
    script = holder_script(HOSTILE)
    env = {**node.transport.env, "SLURM_JOB_NODELIST": "n[0-1]"}
    env["PATH"] = f"{tools}:{env['PATH']}"
    process = subprocess.Popen(
        ["sh", "-c", script], env=env, executable=str(node.tools / "sh"), start_new_session=True
    )
    told = [tmp_path / f"--nodelist={name}" for name in ("n0", "n1")]
    until(lambda: all(path.exists() and path.stat().st_size for path in told))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    assert {path.read_text() for path in told} == {f"{holder_text()}hold {quote(HOSTILE)}"}
