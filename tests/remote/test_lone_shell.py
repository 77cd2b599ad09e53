"""Hosts that can't start processes: a stop has only the shell of its call."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, Silence, WorkerReport
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import ProbedHost
from tests.support import lone_shell
from tests.support.lone_shell import alone
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, kill, marked

works = cache(lone_shell.works)


SOAKED = [pytest.param(shell, marks=pytest.mark.soak) for shell in ("busybox", "bash")]


@pytest.fixture(params=["dash", *SOAKED])
def host(request: pytest.FixtureRequest, probed_host: ProbedHost) -> WorkerHost:
    """Dash, because bash tries for 15 seconds to start a process before it gives up, and busybox's shell without `cat`
    reads the environment of every process byte by byte.
    """
    if not works():
        pytest.skip("the kernel lets us refuse no process here (seccomp)")
    return probed_host(request.param)


@contextmanager
def all_processes(host: WorkerHost) -> Iterator[None]:
    with alone(host.tools):
        yield


@contextmanager
def few_processes(host: WorkerHost) -> Iterator[None]:
    """The host lists only the processes of attempts: reading all those of a busy machine takes a second."""
    proc, runner = host.directory / "proc", host.runner
    host.runner = TaskRunner(host.transport, "c1", paths=HostPaths(proc=str(proc)))
    try:
        with alone(host.tools, proc):
            yield
    finally:
        host.runner = runner


def prepared(host: WorkerHost, ran: Path) -> Token:
    request = host.request("touch", str(ran), env={"SECRET": "canary"})
    (report,) = host.prepare(request)
    assert report.state is RemoteState.PREPARED
    return request.token


def test_a_fence_reports_attempts_that_never_started(host: WorkerHost, tmp_path: Path) -> None:
    token = prepared(host, tmp_path / "ran")
    with few_processes(host):
        answer = host.runner.go(host.target, [token], boot_id=host.boot_id, incarnation=host.incarnation)
        assert isinstance(answer, Silence)
        assert host.stop(token).state is RemoteState.STOPPED
        assert host.stop(token).state is RemoteState.STOPPED
    (report,) = host.go(token)
    assert report.state is RemoteState.STOPPED
    assert host.state(token) is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()
    (secrets,) = host.attempt_dir(token).glob("env.*")
    assert secrets.read_bytes() == b""
    until(lambda: host.reaped(token) == {token})


def test_a_late_start_finds_the_fence(host: WorkerHost, tmp_path: Path) -> None:
    """A start that was delayed until the host can start processes again."""
    token = prepared(host, tmp_path / "ran")
    with few_processes(host):
        host.stop(token)
    words = ["sh", str(host.attempt_dir(token) / "run"), "start"]
    subprocess.run(words, env=host.transport.env, check=False, timeout=PATIENCE)
    assert host.state(token) is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()


def test_a_fenced_launch_that_never_arrived_cannot_start(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"))
    with few_processes(host):
        assert host.stop(request.token).state is RemoteState.STOPPED
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()


def test_several_are_answered_for_at_once_or_not_at_all(host: WorkerHost, tmp_path: Path) -> None:
    waits, runs = prepared(host, tmp_path / "ran"), host.running("sleep", "1000")
    with few_processes(host):
        assert isinstance(host.runner.stop(host.target, [(waits, 5.0), (runs, 5.0)]), Silence)
        assert host.stop(waits).state is RemoteState.STOPPED
    assert host.state(runs) is RemoteState.RUNNING
    assert host.stopped(runs).state is RemoteState.STOPPED


@pytest.mark.parametrize("what", ["prepared", "absent"])
def test_a_stop_is_not_proven_while_a_process_has_the_marker(
    host: WorkerHost, tmp_path: Path, what: str
) -> None:
    """A wrapper that has done nothing yet, or processes whose directory was edited or removed."""
    token = prepared(host, tmp_path / "ran") if what == "prepared" else host.request("true").token
    stray = subprocess.Popen(
        ["sleep", "1000"], env={"A": "1", "IRIS_ATTEMPT_TOKEN": token, "PATH": "/bin:/usr/bin"}
    )
    try:
        until(lambda: marked(token))  # the kernel shows its environment a moment after the start
        with few_processes(host):
            assert isinstance(host.runner.stop(host.target, [(token, 5.0)]), Silence)
    finally:
        stray.kill()
        stray.wait()
    with few_processes(host) if what == "prepared" else all_processes(host):
        assert host.stop(token).state is RemoteState.STOPPED


def test_an_orphaned_attempt_does_not_prevent_the_fence_of_others(host: WorkerHost, tmp_path: Path) -> None:
    """Searching its processes needs other processes, at which the shell would exit."""
    lives, waits = host.running("sleep", "1000"), prepared(host, tmp_path / "ran")
    kill(host.wrapper(lives))
    with few_processes(host):
        assert isinstance(host.runner.stop(host.target, [(lives, 5.0), (waits, 5.0)]), Silence)
    assert host.state(waits) is RemoteState.STOPPED
    assert host.state(lives) is RemoteState.ORPHANED
    assert host.stopped(lives).state is RemoteState.STOPPED


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A directory like /proc without processes."""
    made = tmp_path / "proc"
    made.mkdir()
    for name in ("self", "stat", "sys", "uptime"):
        (made / name).symlink_to(f"/proc/{name}")
    return made


def test_a_stop_is_not_proven_if_processes_cannot_be_listed(host: WorkerHost, proc: Path) -> None:
    """As if files can't be opened."""
    (proc / "1").mkdir()
    (proc / "1/environ").touch()
    runner = TaskRunner(host.transport, "c1", paths=HostPaths(proc=str(proc)))
    token = host.request("true").token
    with alone(host.tools):
        assert isinstance(runner.stop(host.target, [(token, 5.0)]), Silence)
    assert not host.attempt_dir(token).exists()


def test_an_unreadable_process_prevents_no_fence(host: WorkerHost, proc: Path) -> None:
    """As those of the kernel, of other users, and ended ones; each is tried as the last in the list."""
    (proc / "9999999999").mkdir()
    (proc / "9999999999/environ").symlink_to("environ")  # to itself: it can't be opened
    runner = TaskRunner(host.transport, "c1", paths=HostPaths(proc=str(proc)))
    with alone(host.tools):
        first, rest = (host.tools / "sh").read_text().split("\n", 1)
        (host.tools / "sh").write_text(f"{first}\n{shutil.which('ln')} -s /proc/$$ {proc}\n{rest}")
        answer = runner.stop(host.target, [(host.request("true").token, 5.0)])
    assert isinstance(answer, WorkerReport), answer
    assert answer.attempts[0].state is RemoteState.STOPPED


@pytest.mark.parametrize("trace", ["launch.pending", "go"])
def test_a_possibly_started_attempt_is_not_reported_as_stopped(
    host: WorkerHost, tmp_path: Path, trace: str
) -> None:
    token = prepared(host, tmp_path / "ran")
    directory = host.attempt_dir(token)
    if trace == "go":
        (directory / "go").touch()
    else:
        (directory / "launch.pending").rename(directory / "launch.1")
    with few_processes(host):
        assert isinstance(host.runner.stop(host.target, [(token, 5.0)]), Silence)
    assert host.stopped(token).state is RemoteState.STOPPED
