"""Set-ups, time limits, and refusals to start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from tests.remote.conftest import ProbedHost
from tests.support.waiting import LIMITS, until
from tests.support.worker_host import WorkerHost, is_alive, kill, marked, pids_in, until_gone

SETTLED = {RemoteState.PREPARED, RemoteState.NOSTART, RemoteState.LOST, RemoteState.CANCELLED}


def test_a_task_starts_only_after_its_setup_and_only_on_go(host: WorkerHost, tmp_path: Path) -> None:
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    setup = (
        f'echo setting up "$NAME" in "${{PWD##*/}}"\nwhile [ ! -e {gate} ]; do sleep 0.1; done\ntouch made'
    )
    request = host.request("sh", "-c", f"ls; touch {ran}", setup=setup, env={"NAME": "it's me"})
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.PREPARING
    (report,) = host.go(request.token)
    assert report.state is RemoteState.PREPARING
    gate.touch()
    assert host.wait(request.token, SETTLED).state is RemoteState.PREPARED
    assert not ran.exists()

    host.go(request.token)
    report = host.wait(request.token)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 0)
    assert host.output(request.token) == b"setting up it's me in tree.1\nmade\n"


def test_variables_of_a_job_with_the_names_of_ours_change_no_setup(host: WorkerHost) -> None:
    env = dict.fromkeys(("nonce", "dir", "shell", "tree", "mask"), "/nowhere")
    request = host.request("sh", "-c", 'echo "$nonce $dir"', setup="touch made", env=env)
    host.prepare(request)
    assert host.wait(request.token, SETTLED).state is RemoteState.PREPARED
    host.go(request.token)
    host.wait(request.token)
    assert host.output(request.token) == b"/nowhere /nowhere\n"


def test_a_running_setup_reports_its_age(host: WorkerHost, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    request = host.request("true", setup=f"while [ ! -e {gate} ]; do sleep 0.1; done")
    host.prepare(request)
    until(lambda: (host.poll(request.token)[0].started_ago or 0.0) >= 0.2)
    (report,) = host.poll(request.token)
    assert report.state is RemoteState.PREPARING
    gate.touch()
    assert host.wait(request.token, SETTLED).state is RemoteState.PREPARED


def test_a_setup_that_fails_is_a_no_start_with_its_output(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"), setup="echo no such package >&2\nexit 9")
    host.prepare(request)
    report = host.wait(request.token, SETTLED)
    assert (report.state, report.cause, report.exit_code) == (RemoteState.NOSTART, "setup", 9)
    assert report.log_tail == "no such package\n"
    (report,) = host.go(request.token)
    assert report.state is RemoteState.NOSTART
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.NOSTART
    assert not (tmp_path / "ran").exists()
    assert not (host.attempt_dir(request.token) / "env").exists()


def test_processes_left_by_a_setup_end_with_it(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    request = host.request("true", setup=f"sleep 1000 & echo $! >>{pids}")
    host.prepare(request)
    assert host.wait(request.token, SETTLED).state is RemoteState.PREPARED
    assert not is_alive(pids_in(pids)[0])
    until_gone(request.token)


def test_a_setup_that_takes_too_long_is_ended(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    request = host.request("true", setup=f"echo $$ >>{pids}; sleep 1000", setup_timeout=0.3)
    host.prepare(request)
    report = host.wait(request.token, SETTLED)
    assert (report.state, report.cause, report.exit_code) == (RemoteState.NOSTART, "setup", None)
    until_gone(request.token)


def test_a_setup_can_be_stopped_and_nothing_starts_afterwards(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"), setup=f"echo $$ >>{tmp_path}/pids; sleep 1000")
    host.prepare(request)
    until(lambda: pids_in(tmp_path / "pids"))
    assert host.stopped(request.token).state is RemoteState.STOPPED
    host.prepare(request, go=True)
    host.go(request.token)
    assert host.state(request.token) is RemoteState.STOPPED
    assert not marked(request.token)
    assert not (tmp_path / "ran").exists()


def test_a_setup_whose_runner_was_killed_is_never_prepared(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("true", setup=f"echo $$ >>{tmp_path}/pids; exec sleep 1000")
    host.prepare(request)
    until(lambda: pids_in(tmp_path / "pids"))
    runner = int((host.attempt_dir(request.token) / "setup.pid").read_text().split()[0])
    kill(runner)
    until(lambda: not is_alive(runner))
    assert host.state(request.token) is RemoteState.PREPARING
    for pid in marked(request.token):
        kill(pid)
    assert host.wait(request.token, SETTLED).state is RemoteState.LOST
    host.prepare(request, go=True)
    assert host.state(request.token) is RemoteState.LOST


@pytest.mark.parametrize("moment", ["empty directory", "half written", "waiting"])
def test_a_half_prepared_attempt_is_not_prepared_and_can_be_finished(
    host: WorkerHost, tmp_path: Path, moment: str
) -> None:
    """The same directories as those of a caller killed between two steps."""
    request = host.request("sh", "-c", 'echo "$SECRET" >>"$0"', str(tmp_path / "ran"), env={"SECRET": "one"})
    directory = host.attempt_dir(request.token)
    if moment == "empty directory":
        directory.mkdir(mode=0o700)
    else:
        host.prepare(request)
    if moment == "half written":
        nonce = (directory / "run").read_text().split()[1]
        (directory / "run").unlink()
        (directory / f"run.{nonce}").unlink()
        (directory / f"cmd.{nonce}").write_text("task_cmd() {")
    elif moment == "waiting":
        (directory / "ready").rename(directory / "ready.pending")
    assert host.state(request.token) is RemoteState.PREPARING
    (report,) = host.go(request.token)
    assert report.state is RemoteState.PREPARING

    host.prepare(request, go=True)
    report = host.wait(request.token)
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 0), report.log_tail
    assert (tmp_path / "ran").read_text() == "one\n"


def past_its_limit(
    host: WorkerHost, script: str, there: Path, lines: int, grace: float
) -> tuple[Token, AttemptReport]:
    """Run a task until a time limit that is long enough for these lines of output."""
    for limit in LIMITS:
        there.write_text("")
        token = host.launch("sh", "-c", script, str(there), timeout=limit, grace=grace)
        report = host.wait(token)
        if there.read_text().count("\n") == lines:
            return token, report
    raise AssertionError("the task never came so far")


def test_the_time_limit_ends_all_processes_with_the_cause_timeout(host: WorkerHost, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        'trap "" TERM; (setsid sleep 1000 & echo $! >>"$0"; wait) & echo $$ >>"$0"; while :; do sleep 1; done'
    )
    token, report = past_its_limit(host, script, pids, lines=2, grace=0.5)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 137, "timeout")
    assert not any(is_alive(pid) for pid in pids_in(pids))
    until_gone(token)


def test_a_task_may_end_well_within_its_grace_and_it_is_still_a_timeout(
    host: WorkerHost, tmp_path: Path
) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready >\"$0\"; while :; do sleep 0.2; done"
    token, report = past_its_limit(host, script, tmp_path / "ready", lines=1, grace=60)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 0, "timeout")
    assert host.output(token) == b"saved\n"


def test_a_task_within_its_limit_does_not_time_out(host: WorkerHost) -> None:
    report = host.ended("sh", "-c", "exit 143", timeout=1000)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 143, "")


def test_a_process_that_cannot_be_killed_makes_the_attempt_unkillable_until_it_ends(
    probed_host: ProbedHost,
) -> None:
    """A frozen cgroup delays even SIGKILL."""
    freezer = Path("/sys/fs/cgroup/freezer")
    if os.geteuid() != 0 or not (freezer / "cgroup.procs").exists():
        pytest.skip("needs root and a freezer of cgroup v1")
    host = probed_host()
    token = host.running("sleep", "1000")
    group = freezer / f"iris-test-{token}"
    group.mkdir()
    try:
        (victim,) = marked(token) - {host.wrapper(token)}
        (group / "cgroup.procs").write_text(str(victim))
        (group / "freezer.state").write_text("FROZEN")
        assert host.stop(token, grace=0).state in (RemoteState.STOPPING, RemoteState.UNKILLABLE)
        assert host.wait(token, {RemoteState.UNKILLABLE}).state is RemoteState.UNKILLABLE
        assert is_alive(victim)
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not is_alive(victim))
        assert host.stopped(token, grace=0).state is RemoteState.STOPPED
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
