"""Control groups of tasks: processes that left the session and the environment are found, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.local_transport import tools_of
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, is_alive, kill, marked, pids_in

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]], {})
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
time.sleep(float(sys.argv[3]))
"""
STAY = """
import os, sys, time
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
time.sleep(1000)
"""

CHAIN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
end = time.monotonic() + 100
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.utime(sys.argv[1])
    time.sleep(0.001)
"""
"""A chain of processes that live so shortly that a listing can miss all of them."""


HEAR = (
    "import os, signal, sys; signal.signal(signal.SIGTERM, lambda *_: os.remove(sys.argv[1]) or os._exit(0))"
)


def daemon(path: Path, seconds: float = 1000, stay: str = STAY) -> list[str]:
    """Return a task with a child that forked twice, left its session and cleared its environment."""
    return [sys.executable, "-c", DAEMON, str(path), stay, str(seconds)]


@pytest.fixture
def grouped(host_shell: str, probed_host: ProbedHost) -> WorkerHost:
    """A worker with control groups; the test is skipped if they don't work on this machine."""
    host = probed_host(host_shell)
    if host.containment != "cgroup":
        pytest.skip("needs a control group (version 2) that can be written")
    return host


def group_of(host: WorkerHost, token: str) -> Path:
    return Path((host.root / "a" / token / "group").read_text().strip())


def test_a_daemon_of_the_task_is_stopped_with_it(grouped: WorkerHost, tmp_path: Path) -> None:
    token = grouped.running(*daemon(tmp_path / "pids"))
    until(lambda: pids_in(tmp_path / "pids"))
    (stray,) = pids_in(tmp_path / "pids")
    assert stray not in marked(token)
    assert grouped.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(stray)
    assert not group_of(grouped, token).exists()


def test_a_daemon_hears_the_end_of_its_task_and_ends_with_it(grouped: WorkerHost, tmp_path: Path) -> None:
    """It gets SIGTERM: it removes the file with its pid."""
    pids = tmp_path / "pids"
    token = grouped.launch(*daemon(pids, 0, HEAR + STAY))
    assert grouped.wait(token).exit_code == 0
    assert not pids.exists()
    assert not group_of(grouped, token).exists()  # only an empty group can be removed


def test_a_daemon_of_an_orphan_keeps_it_from_being_lost(grouped: WorkerHost, tmp_path: Path) -> None:
    token = grouped.running(*daemon(tmp_path / "pids"))
    until(lambda: pids_in(tmp_path / "pids"))
    kill(grouped.wrapper(token))
    for pid in marked(token):
        kill(pid)
    assert grouped.wait(token, {RemoteState.ORPHANED, RemoteState.LOST}).state is RemoteState.ORPHANED
    assert grouped.stopped(token).state is RemoteState.STOPPED
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids"))


def test_the_wrapper_is_outside_and_groups_that_a_task_makes_are_inside(grouped: WorkerHost) -> None:
    token = grouped.running("sleep", "1000")
    group = group_of(grouped, token)
    (task,) = (int(line) for line in (group / "cgroup.procs").read_text().split())
    assert task != grouped.wrapper(token)
    (group / "inner").mkdir()
    (group / "inner/cgroup.procs").write_text(str(task))
    assert grouped.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(task)
    assert not group.exists()


def test_a_program_that_ignores_sigterm_is_killed(grouped: WorkerHost, tmp_path: Path) -> None:
    stay = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + STAY
    token = grouped.running(sys.executable, "-c", DAEMON, str(tmp_path / "pids"), stay, "1000")
    until(lambda: pids_in(tmp_path / "pids"))
    assert grouped.stopped(token, grace=0.5).state is RemoteState.STOPPED
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids"))


def test_the_set_up_has_a_group_too(grouped: WorkerHost, tmp_path: Path) -> None:
    program = tmp_path / "daemon.py"
    program.write_text(DAEMON)
    stay = tmp_path / "stay.py"
    stay.write_text(STAY)
    setup = f'{sys.executable} {program} {tmp_path}/pids "$(cat {stay})" 0'
    request = grouped.request("true", setup=setup)
    grouped.prepare(request)
    grouped.wait(request.token, {RemoteState.PREPARED})
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids"))
    grouped.go(request.token)
    assert grouped.wait(request.token).exit_code == 0
    assert not group_of(grouped, request.token).exists()


def test_a_file_with_the_path_of_another_group_has_no_effect(grouped: WorkerHost) -> None:
    token, other = grouped.running("sleep", "1000"), grouped.running("sleep", "1000")
    foreign = group_of(grouped, other)
    for name in (str(foreign), f"{foreign}/../{foreign.name}", "/", "/proc"):
        (grouped.attempt_dir(token) / "group").write_text(f"{name}\n")
        assert grouped.state(token) is RemoteState.RUNNING
    assert grouped.stopped(token, grace=0).state is RemoteState.STOPPED
    assert grouped.state(other) is RemoteState.RUNNING


def test_a_chain_of_processes_that_fork_and_end_is_killed_at_once(
    grouped: WorkerHost, tmp_path: Path
) -> None:
    sign = tmp_path / "sign"
    sign.touch()
    os.utime(sign, (0, 0))
    start = 'env -i "$@" & sleep 1000'
    token = grouped.running("sh", "-c", start, "sh", sys.executable, "-c", CHAIN, str(sign))
    until(lambda: sign.stat().st_mtime > 0)
    group = group_of(grouped, token)
    if not (group / "cgroup.kill").exists():
        pytest.skip("this kernel can't kill a group at once")
    assert grouped.stopped(token, grace=0.5).state is RemoteState.STOPPED
    assert not group.exists()  # only an empty group can be removed


def test_without_a_group_the_session_and_the_marker_contain_it(
    make_host: MakeHost, tmp_path: Path, host_shell: str
) -> None:
    host = make_host(host_shell, paths=HostPaths(sys=str(tmp_path / "no-groups")))
    assert host.probe().containment == "session"
    token = host.running("sh", "-c", "setsid sleep 1000 & sleep 1000")
    assert not (host.attempt_dir(token) / "group").exists()
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


@pytest.mark.parametrize("step", ["exit 1", "ln -s /proc/version {group}/cgroup.procs", "rmdir {group}"])
def test_a_group_that_fails_midway_changes_nothing(make_host: MakeHost, tmp_path: Path, step: str) -> None:
    """The group can't be made, can't be entered, or was removed."""
    if not any(line.startswith("0::") for line in Path("/proc/self/cgroup").read_text().splitlines()):
        pytest.skip("no control groups (version 2) here")
    path = Path("/proc/self/cgroup").read_text().split("0::")[1].split("\n")[0]
    ours = tmp_path / f"sys/fs/cgroup{path}"
    ours.mkdir(parents=True)
    (ours / "cgroup.procs").touch()
    tools = tools_of("dash", tmp_path / "tools")
    do = step.format(group='"$1"')
    (tools / "mkdir").write_text(
        f'#!/bin/sh\ncase $1 in */iris-*) echo "$1" >>{tmp_path}/asked; /bin/mkdir "$1"; {do}; exit ;; esac\n'
        'exec /bin/mkdir "$@"\n'
    )
    (tools / "mkdir").chmod(0o755)
    host = make_host(tools=tools, paths=HostPaths(sys=str(tmp_path / "sys")))
    assert host.probe().containment == "session"
    assert host.ended("sh", "-c", "exit 3").exit_code == 3
    assert host.stopped(host.running("sleep", "1000")).state is RemoteState.STOPPED
    assert len((tmp_path / "asked").read_text().splitlines()) == 3


def test_without_a_group_a_daemon_that_forgot_its_environment_is_not_found(
    probed_host: ProbedHost, tmp_path: Path
) -> None:
    """Without a group nothing connects such a process with the task."""
    host = probed_host(paths=HostPaths(sys=str(tmp_path / "no-groups")))
    token = host.running(*daemon(tmp_path / "pids"))
    until(lambda: pids_in(tmp_path / "pids"))
    (stray,) = pids_in(tmp_path / "pids")
    try:
        assert host.stopped(token).state is RemoteState.STOPPED
        assert is_alive(stray)
    finally:
        kill(stray)
