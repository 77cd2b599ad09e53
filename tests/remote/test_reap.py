"""Files of ended attempts are removed, except their tokens; no other file is touched."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.remote.task_runner import LaunchRequest
from tests.remote.conftest import ProbedHost
from tests.support.bombs import Bomb
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, kill, marked

WRITE = """
mkdir -p .hidden/deep 'two words' closed/inner; echo x >.hidden/deep/file; echo x >'two words/-rf'
echo x >'
'; echo x >../-delete; echo x >../.hidden; echo x >closed/inner/file; chmod 0 closed/inner; chmod 500 closed
ln -s "$0" link; ln -s "$0/precious" ../link; rm -r ../output; ln -s "$0" ../output; exit 3
"""
LAST = 80


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files that must not be touched."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").write_text("mine\n")
    return tmp_path / "outside"


def request_of(host: WorkerHost, token: Token, ran: Path) -> LaunchRequest:
    """Return the same launch request again."""
    return LaunchRequest(token=token, argv=("touch", str(ran)), env={})


def reap(host: WorkerHost, *tokens: Token) -> None:
    """Repeat `reap` until no files are left: on a busy machine that takes several calls."""
    until(lambda: host.reaped(*tokens) == set(tokens))


def names(host: WorkerHost, token: Token) -> set[str]:
    return {path.name for path in host.attempt_dir(token).iterdir()}


def test_reaping_deletes_files_and_keeps_the_end(host: WorkerHost, outside: Path, tmp_path: Path) -> None:
    token = host.launch("sh", "-c", WRITE, str(outside))
    host.wait(token)
    reap(host, token)
    assert names(host, token) == {"cancel", "x.3"}
    assert (outside / "precious").read_text() == "mine\n"
    report = host.poll(token)[0]
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    reap(host, token)
    assert host.prepare(request_of(host, token, tmp_path / "ran"), go=True)[0].state is RemoteState.EXITED
    assert host.go(token)[0].state is RemoteState.EXITED
    assert host.stop(token).state is RemoteState.EXITED
    assert names(host, token) == {"cancel", "x.3"}
    assert not (tmp_path / "ran").exists()


def test_a_reaped_lost_attempt_can_never_start(host: WorkerHost, tmp_path: Path) -> None:
    token = host.running("sleep", "1000")
    kill(host.wrapper(token))
    for pid in marked(token):
        kill(pid)
    host.wait(token, {RemoteState.LOST})
    reap(host, token)
    assert names(host, token) == {"cancel", "stop.done"}
    assert host.prepare(request_of(host, token, tmp_path / "ran"), go=True)[0].state is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()


def test_reaping_keeps_each_recorded_end(host: WorkerHost) -> None:
    stopped, refused = host.running("sleep", "1000"), host.request("true", setup="exit 1").token
    host.stopped(stopped)
    host.prepare(host.request("true"), LaunchRequest(token=refused, argv=("true",), env={}, setup="exit 1"))
    host.wait(refused)
    absent = host.request("true").token
    tombstone = host.request("true").token
    host.stop(tombstone)
    tokens = (stopped, refused, absent, tombstone)
    before = [(report.state, report.cause) for report in host.poll(*tokens)]
    assert before == [
        (RemoteState.STOPPED, ""),
        (RemoteState.NOSTART, "setup"),
        (RemoteState.ABSENT, ""),
        (RemoteState.STOPPED, ""),
    ]
    reap(host, *tokens)
    assert [(report.state, report.cause) for report in host.poll(*tokens)] == before
    assert not host.attempt_dir(absent).exists()
    assert host.attempt_dir(tombstone).is_file()


def test_nothing_of_a_live_attempt_is_touched(host: WorkerHost) -> None:
    running, orphan = host.running("sleep", "1000"), host.running("sleep", "1000")
    kill(host.wrapper(orphan))
    host.wait(orphan, {RemoteState.ORPHANED})
    prepared, setting_up = host.request("true"), host.request("true", setup="sleep 1000")
    host.prepare(prepared, setting_up)
    stopping = host.stubborn()
    host.stop(stopping, grace=10_000)
    edited = host.running("sleep", "1000")
    (host.attempt_dir(edited) / "x.pending").rename(host.attempt_dir(edited) / "x.0")
    tokens = [running, orphan, prepared.token, setting_up.token, stopping, edited]
    before = [names(host, token) for token in tokens]
    assert host.reaped(*tokens) == set()
    assert [names(host, token) for token in tokens] == before


def test_a_link_in_place_of_an_attempt_is_not_followed(host: WorkerHost, outside: Path) -> None:
    token = host.request("true").token
    (outside / "x.0").touch()
    host.attempt_dir(token).symlink_to(outside)
    host.reaped(token)
    assert (outside / "precious").read_text() == "mine\n"
    assert sorted(path.name for path in outside.iterdir()) == ["precious", "x.0"]


def test_mounts_in_an_attempt_are_not_deleted(dash_host: WorkerHost, outside: Path) -> None:
    token = dash_host.launch("mkdir", "mounted")
    dash_host.wait(token)
    place = dash_host.attempt_dir(token) / "work/mounted"
    mount = ["mount", "--bind", str(outside), str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        assert dash_host.reaped(token) == set()
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert (outside / "precious").read_text() == "mine\n"
    reap(dash_host, token)
    assert (outside / "precious").read_text() == "mine\n"


def test_a_large_tree_is_reaped_in_the_end(dash_host: WorkerHost) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo >$i; i=$((i + 1)); done"
    token = dash_host.launch("sh", "-c", script)
    dash_host.wait(token)
    reap(dash_host, token)
    assert names(dash_host, token) == {"cancel", "x.0"}


@pytest.mark.parametrize(
    ("lost", "step"),
    [
        (False, 12),
        pytest.param(False, 3, marks=pytest.mark.soak),
        pytest.param(True, 3, marks=pytest.mark.soak),
    ],
)
def test_a_reap_cut_off_anywhere_is_finished_by_the_next(
    probed_host: ProbedHost, tmp_path: Path, outside: Path, lost: bool, step: int
) -> None:
    bomb = Bomb(tmp_path / "bomb")
    armed, host = probed_host(tools=bomb.tools), probed_host()
    for at in range(1, LAST, step):
        if lost:
            token = host.running("sleep", "1000")
            kill(host.wrapper(token))
            for pid in marked(token):
                kill(pid)
            host.wait(token, {RemoteState.LOST})
        else:
            token = host.launch("sh", "-c", WRITE, str(outside))
            host.wait(token)
        bomb.set("before", at)
        armed.runner.reap(armed.target, [token])
        went_off = bomb.count >= at
        bomb.defuse()
        assert host.state(token) in (
            {RemoteState.LOST, RemoteState.STOPPED} if lost else {RemoteState.EXITED}
        )
        host.prepare(request_of(host, token, tmp_path / "ran"), go=True)
        host.go(token)
        reap(host, token)
        assert not (tmp_path / "ran").exists()
        assert not marked(token)
        if not went_off:
            break
    else:
        raise AssertionError("a reap runs more commands than this test knows")
    assert (outside / "precious").read_text() == "mine\n"


def test_a_poll_that_may_precede_it_reports_the_clock(host: WorkerHost) -> None:
    """Without it, iris could not see that its own clock was set ahead, and would delete recent files."""
    answer = host.runner.poll(host.target, ())
    assert isinstance(answer, WorkerReport)
    assert abs(answer.clock - time.time()) < 60
