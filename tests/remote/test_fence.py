"""Fences: a stopped attempt has no processes and never starts, even if a launch arrives late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import ProbedHost
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, is_alive, kill, marked, pids_in, start_ticks

COUNT_TERMS = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"term\\n"))
os.write(1, b"up\\n")
while True:
    time.sleep(1)
"""

BARE_CHILD = """
import subprocess, time
print(subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True).pid, flush=True)
time.sleep(1000)
"""

STRAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "a") as file:
            print(os.getpid(), file=file)
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


@pytest.mark.two_shells
def test_a_running_task_is_stopped_by_term(host: WorkerHost, tmp_path: Path) -> None:
    token = host.running(
        "sh",
        "-c",
        'trap "echo got term; exit 0" TERM; echo $$ >"$0"; while :; do sleep 0.2; done',
        str(tmp_path / "pid"),
    )
    until(lambda: pids_in(tmp_path / "pid"))
    assert host.stopped(token, grace=60).state is RemoteState.STOPPED
    assert host.output(token) == b"got term\n"
    assert not marked(token)


def test_a_task_that_ends_at_once_is_stopped_without_waiting_for_its_grace(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    host.stop(token, grace=10 * PATIENCE)
    host.wait(token, {RemoteState.STOPPED})


def test_a_task_that_ignores_term_is_killed_after_its_grace(host: WorkerHost, tmp_path: Path) -> None:
    token = host.running(
        "sh", "-c", 'trap "" TERM; echo $$ >"$0"; while :; do sleep 1; done', str(tmp_path / "pid")
    )
    until(lambda: pids_in(tmp_path / "pid"))
    assert host.stop(token, grace=10_000).state is RemoteState.STOPPING
    host.stop(token, grace=20_000)
    assert is_alive(pids_in(tmp_path / "pid")[0])
    host.stop(token, grace=0.5)  # less patience shortens the grace
    assert host.wait(token, {RemoteState.STOPPED}).exit_code is None
    assert not marked(token)


@pytest.mark.soak
def test_each_process_gets_one_term_however_often_stop_is_sent(host: WorkerHost, tmp_path: Path) -> None:
    token = host.running(sys.executable, "-c", COUNT_TERMS)
    until(lambda: host.output(token) == b"up\n")
    for _ in range(5):
        assert host.stop(token, grace=10_000).state is RemoteState.STOPPING
    until(lambda: host.output(token) != b"up\n")
    assert host.output(token) == b"up\nterm\n"
    host.stopped(token, grace=0)
    assert host.output(token) == b"up\nterm\n"


def test_a_stray_that_forked_twice_and_left_the_session_is_ended_too(
    host: WorkerHost, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    token = host.running(sys.executable, "-c", STRAY, str(pids))
    until(lambda: pids_in(pids))
    (stray,) = pids_in(pids)
    assert os.getsid(stray) != host.wrapper(token)
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(stray)
    assert not marked(token)


def test_a_child_without_the_marker_is_ended_with_its_session(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = r'(env -i sh -c "echo \$\$; exec sleep 1000" &) >>"$0"; sleep 1000'
    token = host.running("sh", "-c", script, str(pids))
    until(lambda: pids_in(pids))
    (child,) = pids_in(pids)
    assert child not in marked(token)
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(child)


def test_a_child_without_marker_in_a_session_of_its_own_is_found_by_its_parent(
    host: WorkerHost, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    token = host.running("sh", "-c", 'exec "$0" -c "$1" >>"$2"', sys.executable, BARE_CHILD, str(pids))
    until(lambda: pids_in(pids))
    (child,) = pids_in(pids)
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(child)


def test_a_stopped_process_is_woken_to_hear_its_term(host: WorkerHost, tmp_path: Path) -> None:
    token = host.running(
        "sh", "-c", 'trap "exit 0" TERM; echo $$ >"$0"; while :; do sleep 0.2; done', str(tmp_path / "pid")
    )
    until(lambda: pids_in(tmp_path / "pid"))
    os.kill(pids_in(tmp_path / "pid")[0], signal.SIGSTOP)
    assert host.stopped(token, grace=10_000).state is RemoteState.STOPPED


@pytest.mark.two_shells
def test_a_stopped_attempt_that_was_never_launched_can_never_start(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"))
    assert host.stop(request.token).state is RemoteState.STOPPED
    assert host.attempt_dir(request.token).is_file()
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.STOPPED
    (report,) = host.go(request.token)
    assert report.state is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()


def test_a_tombstone_needs_no_link_command(probed_host: ProbedHost, tmp_path: Path, host_shell: str) -> None:
    from tests.support.local_transport import tools_of

    tools = tools_of(host_shell, tmp_path / "tools", without=["link"])
    (tools / "link").write_text("#!/bin/sh\nexit 127\n")
    (tools / "link").chmod(0o755)
    host = probed_host(tools=tools)
    absent, there = host.request("true"), host.request("true")
    host.prepare(there)
    assert host.stop(absent.token).state is RemoteState.STOPPED
    assert host.attempt_dir(absent.token).is_file()
    assert host.stopped(there.token).state is RemoteState.STOPPED
    assert host.attempt_dir(there.token).is_dir()
    assert host.prepare(absent, there, go=True)[0].state is RemoteState.STOPPED


@pytest.mark.two_shells
def test_a_prepared_and_stopped_attempt_never_starts(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"), env={"SECRET": "canary"})
    host.prepare(request)
    assert host.stopped(request.token).state is RemoteState.STOPPED
    (report,) = host.go(request.token)
    assert report.state is RemoteState.STOPPED
    # The same for a wrapper that was already started.
    run = host.attempt_dir(request.token) / "run"
    subprocess.run(["sh", str(run), "start"], check=False, env=host.transport.env, timeout=PATIENCE)
    assert host.state(request.token) is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()
    assert not (host.attempt_dir(request.token) / "env").exists()


def test_an_end_before_the_stop_is_kept(host: WorkerHost) -> None:
    token = host.launch("sh", "-c", "exit 5")
    host.wait(token)
    report = host.stop(token)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 5)


@pytest.mark.soak
def test_an_orphan_is_stopped(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    kill(host.wrapper(token))
    host.wait(token, {RemoteState.ORPHANED})
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


def test_a_stop_writes_nothing_where_a_link_in_place_of_the_attempt_leads(
    host: WorkerHost, tmp_path: Path
) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    script = 'rm -rf "$IRIS_TASK_DIR"; ln -s "$0" "$IRIS_TASK_DIR"; exec sleep 7030'
    token = host.launch("sh", "-c", script, str(elsewhere))
    until(host.attempt_dir(token).is_symlink)
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)
    assert list(elsewhere.iterdir()) == []


def test_a_lost_attempt_is_stopped(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    os.kill(host.wrapper(token), signal.SIGSTOP)
    for pid in [*marked(token) - {host.wrapper(token)}, host.wrapper(token)]:
        kill(pid)
    host.wait(token, {RemoteState.LOST})
    assert host.stopped(token).state is RemoteState.STOPPED


@pytest.mark.soak
def test_a_frozen_wrapper_is_killed_eventually(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    os.kill(host.wrapper(token), signal.SIGSTOP)
    assert host.stopped(token, grace=0).state is RemoteState.STOPPED
    assert not marked(token)


def test_a_bystander_with_the_wrappers_number_is_not_signalled(host: WorkerHost, tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        token = host.running("sleep", "1000")
        kill(host.wrapper(token))
        ticks = int(start_ticks(bystander.pid)) - 1
        (host.attempt_dir(token) / "pid").write_text(f"{bystander.pid} {ticks} {host.boot_id}\n")
        assert host.stopped(token, grace=0).state is RemoteState.STOPPED
        assert not marked(token)
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_bystander_of_another_boot_is_not_signalled(host: WorkerHost) -> None:
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        token = host.running("sleep", "1000")
        kill(host.wrapper(token))
        line = f"{bystander.pid} {start_ticks(bystander.pid)} an-older-boot\n"
        (host.attempt_dir(token) / "pid").write_text(line)
        assert host.stopped(token, grace=0).state is RemoteState.STOPPED
        assert not marked(token)
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_stopper_that_died_is_replaced_and_grace_runs_from_the_first_stop(host: WorkerHost) -> None:
    token = host.stubborn()
    host.stop(token, grace=10_000)
    (name,) = (path.name for path in host.attempt_dir(token).glob("stop.run.*"))
    _, _, since, _, pid, _ = name.split(".")
    kill(int(pid))
    until(lambda: not is_alive(int(pid)))
    assert host.state(token) is RemoteState.STOPPING
    host.stop(token, grace=9_000)
    (name,) = (path.name for path in host.attempt_dir(token).glob("stop.run.*"))
    assert name.startswith(f"stop.run.{since}.900000.")
    assert f".{pid}." not in name
    assert host.stopped(token, grace=0).state is RemoteState.STOPPED
    assert not marked(token)


@pytest.mark.soak
def test_processes_whose_directory_was_removed_are_still_found_and_ended(
    host: WorkerHost, tmp_path: Path
) -> None:
    token = host.running("sleep", "1000")
    directory = host.attempt_dir(token)
    directory.rename(tmp_path / "removed")
    assert host.state(token) is RemoteState.ORPHANED
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


def test_a_directory_that_was_emptied_during_the_task_is_not_prepared_again(
    host: WorkerHost, tmp_path: Path
) -> None:
    request = host.request("sh", "-c", 'echo $$ >>"$0"; sleep 1000', str(tmp_path / "pids"))
    host.prepare(request, go=True)
    host.wait(request.token, {RemoteState.RUNNING})
    until(lambda: pids_in(tmp_path / "pids"))
    (tmp_path / "elsewhere").mkdir()
    for path in host.attempt_dir(request.token).iterdir():
        path.rename(tmp_path / "elsewhere" / path.name)
    assert host.state(request.token) is RemoteState.ORPHANED
    host.prepare(request, go=True)
    assert host.stopped(request.token).state is RemoteState.STOPPED
    assert len(pids_in(tmp_path / "pids")) == 1
    assert not marked(request.token)


def test_a_stop_after_the_home_was_wiped_works_and_the_old_incarnation_stays_gone(
    host: WorkerHost, tmp_path: Path
) -> None:
    token = host.running("sleep", "1000")
    (host.root / "a").rename(tmp_path / "wiped")
    never = host.request("true")
    assert host.stopped(token).state is RemoteState.STOPPED
    assert host.stop(never.token).state is RemoteState.STOPPED
    assert not marked(token)
    old = host.incarnation
    assert host.probe().incarnation != old
