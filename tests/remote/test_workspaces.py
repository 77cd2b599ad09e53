"""Workspaces of attempts: each gets a copy, and the same set-up runs once."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState, WorkerReport
from iris_cli.remote.task_runner import LaunchRequest, Shipment
from iris_cli.remote.worker_script import HostPaths, worker_script
from tests.remote.conftest import ProbedHost, copy_of
from tests.remote.test_ship import TAR, tree
from tests.support.archives import Archive, archive, shipment
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, at_once, command_line, is_marked, kill

S = RemoteState
WORKSPACE = shipment(TAR)


def asks(host: WorkerHost, *argv: str, sent: Shipment = WORKSPACE, **settings: object) -> LaunchRequest:
    return host.request(*argv, workspace=sent.hash, **settings)


def ship(host: WorkerHost, sent: Shipment = WORKSPACE) -> None:
    answer = host.ship(sent)
    assert isinstance(answer, WorkerReport), answer
    assert answer.lacking == ()


def prepare(host: WorkerHost, *requests: LaunchRequest) -> WorkerReport:
    answer = host.runner.prepare(
        host.target, requests, boot_id=host.boot_id, incarnation=host.incarnation, go=False
    )
    assert isinstance(answer, WorkerReport), answer
    return answer


def ready(host: WorkerHost, *requests: LaunchRequest) -> None:
    prepare(host, *requests)
    for request in requests:
        host.wait(request.token, {S.PREPARED})


@pytest.fixture(scope="module")
def model(probed_homes: ProbedHost, tmp_path_factory: pytest.TempPathFactory) -> WorkerHost:
    """A worker that has the workspace, to be copied."""
    probed = probed_homes("dash")
    made = copy_of(probed, WorkerHost(tmp_path_factory.mktemp("model"), probed.tools))
    ship(made)
    return made


@pytest.fixture
def host(host: WorkerHost, model: WorkerHost) -> WorkerHost:
    return copy_of(model, host)


@pytest.fixture
def worker(worker: WorkerHost, model: WorkerHost) -> WorkerHost:
    return copy_of(model, worker)


@pytest.fixture
def dash_host(dash_host: WorkerHost, model: WorkerHost) -> WorkerHost:
    return copy_of(model, dash_host)


def work(host: WorkerHost, token: Token) -> Path:
    return host.attempt_dir(token) / "work"


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def store(host: WorkerHost) -> Path:
    (found,) = (host.root / "s").iterdir()
    return found


def test_a_worker_reports_the_missing_workspace_and_does_nothing(
    probed_host: ProbedHost, host_shell: str
) -> None:
    host = probed_host(host_shell)
    lacks, plain = asks(host, "true"), host.request("true")
    answer = prepare(host, lacks, plain)
    assert answer.lacking == (WORKSPACE.hash,)
    assert [each.state for each in answer.attempts] == [S.ABSENT, S.PREPARED]
    assert not host.attempt_dir(lacks.token).exists()
    assert not (host.root / "w").exists()
    ship(host)
    answer = prepare(host, lacks, plain)
    assert answer.lacking == ()
    host.wait(lacks.token, {S.PREPARED})


def test_each_attempt_has_a_copy_of_its_own(host: WorkerHost) -> None:
    first, second = (
        asks(host, "sh", "-c", "bin/'run it.sh' && echo mine >>README && rm bin/latest"),
        asks(host, "true"),
    )
    ready(host, first, second)
    packed = tree(host.root / "w" / WORKSPACE.hash)
    assert tree(work(host, first.token)) == tree(work(host, second.token)) == packed
    host.go(first.token)
    ended = host.wait(first.token)
    assert (ended.state, ended.exit_code) == (S.EXITED, 0)
    assert host.output(first.token) == b"ran\n"
    changed = tree(work(host, first.token))
    assert (changed["README"], "bin/latest" in changed) == ("data\nmine\n", False)
    assert tree(work(host, second.token)) == tree(host.root / "w" / WORKSPACE.hash) == packed


def counting(place: Path, then: str = "") -> str:
    """Return a set-up that writes a line each time it runs."""
    return f"echo run >>{place}/runs; pwd >where; echo made >made; {then}"


def test_a_set_up_runs_once_for_all_that_ask_for_the_same(host: WorkerHost, tmp_path: Path) -> None:
    requests = [asks(host, "cat", "made", setup=counting(tmp_path, "sleep 0.5")) for _ in range(4)]
    prepare(host, *requests)
    assert not at_once([lambda each=each: prepare(host, each) for each in requests])  # type: ignore[misc]  # bound
    for request in requests:
        host.wait(request.token, {S.PREPARED})
    later = asks(host, "cat", "made", setup=counting(tmp_path, "sleep 0.5"))
    ready(host, later)
    assert lines(tmp_path / "runs") == 1
    cached = store(host) / "tree.1"
    for request in (*requests, later):
        assert tree(work(host, request.token)) == tree(cached)
        assert (work(host, request.token) / "where").read_text().strip() == str(cached)
    host.go(later.token)
    assert host.wait(later.token).exit_code == 0
    assert host.output(later.token) == b"made\n"


def test_another_command_or_workspace_has_a_set_up_of_its_own(worker: WorkerHost, tmp_path: Path) -> None:
    other = shipment(archive(lambda a: a.file("other")))
    ship(worker, other)
    ready(
        worker,
        asks(worker, "true", setup=counting(tmp_path)),
        asks(worker, "true", setup=counting(tmp_path, "true")),
        asks(worker, "true", setup=counting(tmp_path), sent=other),
    )
    assert lines(tmp_path / "runs") == 3
    assert len(list((worker.root / "s").iterdir())) == 3


def test_the_tree_of_a_set_up_is_never_changed_again(worker: WorkerHost, tmp_path: Path) -> None:
    late = "(setsid sh -c 'while :; do echo late >late; sleep 0.05; done' >/dev/null 2>&1 &)"
    left = f"{late}; until [ -e late ]; do sleep 0.1; done; {counting(tmp_path)}"
    request = asks(worker, "sh", "-c", "echo changed >made; chmod 700 .", setup=left)
    ready(worker, request)
    cached = store(worker) / "tree.1"
    for path in (cached, *cached.rglob("*")):
        assert path.is_symlink() or not path.stat().st_mode & 0o222, path
    before = tree(cached)
    worker.go(request.token)
    worker.wait(request.token)
    assert tree(cached) == before
    assert (cached / "made").read_text() == "made\n"


def test_a_set_up_that_fails_keeps_nothing_and_is_tried_again(worker: WorkerHost, tmp_path: Path) -> None:
    command = counting(tmp_path, f"echo why; echo because >&2; [ -e {tmp_path}/well ]")
    failing = asks(worker, "true", setup=command)
    prepare(worker, failing)
    ended = worker.wait(failing.token)
    assert (ended.state, ended.cause) == (S.NOSTART, "setup")
    assert "why\n" in ended.log_tail
    assert "because\n" in ended.log_tail
    assert not list(store(worker).glob("tree.*"))
    (tmp_path / "well").write_text("")
    ready(worker, asks(worker, "true", setup=command))
    assert lines(tmp_path / "runs") == 2


def sleeps(host: WorkerHost, request: LaunchRequest) -> bool:
    """Return True if it sleeps in its set-up, or while it waits for that of another attempt.

    The newest processes come first: a `sleep` ends before all processes of a busy machine have been read.
    """
    processes = reversed([int(each) for each in os.listdir("/proc") if each.isdigit()])
    return any(command_line(each)[:1] == ["sleep"] and is_marked(each, request.token) for each in processes)


def test_attempts_waiting_for_a_failed_set_up_fail(worker: WorkerHost, tmp_path: Path) -> None:
    command = counting(tmp_path, f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo because >&2; exit 3")
    requests = [asks(worker, "true", setup=command) for _ in range(3)]
    prepare(worker, *requests)
    until(lambda: lines(tmp_path / "runs"))
    until(lambda: all((worker.attempt_dir(each.token) / "setup.pid").exists() for each in requests))
    for request in requests:
        until(lambda request=request: sleeps(worker, request))  # type: ignore[misc]  # bound
    (tmp_path / "go").write_text("")
    for request in requests:
        ended = worker.wait(request.token)
        assert (ended.state, ended.cause) == (S.NOSTART, "setup")
        assert "because\n" in ended.log_tail


@pytest.mark.parametrize(
    "end", ["killed", "stopped", pytest.param("killed with all it runs", marks=pytest.mark.soak)]
)
def test_a_set_up_whose_runner_dies_is_taken_over(worker: WorkerHost, tmp_path: Path, end: str) -> None:
    command = counting(tmp_path, f"until [ -e {tmp_path}/go ]; do sleep 0.1; done")
    requests = [asks(worker, "true", setup=command) for _ in range(2)]
    prepare(worker, *requests)
    set_ups = [(each, worker.attempt_dir(each.token) / "setup.pid") for each in requests]
    until(lambda: lines(tmp_path / "runs") and all(pid.exists() for _, pid in set_ups))
    runner = int((store(worker) / "lock.1").read_text().split()[0])
    (mine,) = [each for each, pid in set_ups if pid.read_text().startswith(f"{runner} ")]
    (other,) = [each for each in requests if each is not mine]
    if end == "stopped":
        worker.stopped(mine.token, grace=0.0)
    else:
        kill(runner)
        if end != "killed":
            worker.stopped(mine.token, grace=0.0)
    (tmp_path / "go").write_text("")
    worker.wait(other.token, {S.PREPARED})
    assert lines(tmp_path / "runs") == 2
    assert (work(worker, other.token) / "where").read_text().strip() == str(store(worker) / "tree.2")
    assert not (store(worker) / "failed.1").exists()


def test_a_set_up_that_ends_between_two_looks_is_done(tmp_path: Path) -> None:
    attempt, cache = tmp_path / "a/token", tmp_path / "s/key"
    for directory in (attempt, tmp_path / "w/hash", cache / "tree.1"):
        directory.mkdir(parents=True)
    (attempt / "stop.idle").touch()
    (cache / "tree.1/made").write_text("made\n")
    (cache / "lock.1").write_text("1 2 boot\n")
    library = resources.files("iris_cli") / "remote/shell"
    texts = [(library / f"{name}.sh").read_text() for name in ("host", "attempt", "trees", "copies")]
    looked_for = 'is_alive() { : >"$cache/done.1"; return 1; }\nrun_shared_set_up() { echo again; }\n'
    settings = "boot=boot workspace=hash set_up_key=key\n"
    script = "\n".join(["iris_proc=/proc", *texts, looked_for, settings, "set_up_copy"])
    done = subprocess.run(["sh"], input=script, cwd=attempt, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (attempt / "work/made").read_text() == "made\n"
    assert not (cache / "lock.2").exists()


def test_without_a_lock_file_no_attempt_waits_for_it(dash_host: WorkerHost, tmp_path: Path) -> None:
    full, real = dash_host.tools / "ln", shutil.which("ln")
    full.write_text(f'#!/bin/sh\ncase $2 in */s/*) exit 1 ;; esac\nexec {real} "$@"\n')
    full.chmod(0o755)
    request = asks(dash_host, "true", setup=counting(tmp_path))
    prepare(dash_host, request)
    ended = dash_host.wait(request.token)
    assert (ended.state, ended.cause) == (S.NOSTART, "disk")
    assert not lines(tmp_path / "runs")


@pytest.mark.soak
def test_a_set_up_that_takes_too_long_is_a_failure(dash_host: WorkerHost) -> None:
    request = asks(dash_host, "true", setup="sleep 1000", setup_timeout=0.5)
    prepare(dash_host, request)
    ended = dash_host.wait(request.token)
    assert (ended.state, ended.cause) == (S.NOSTART, "setup")


def test_a_workspace_removed_meanwhile_is_the_workers_fault(dash_host: WorkerHost) -> None:
    request = asks(dash_host, "true", setup="until [ -e /proc/1/none ]; do exit 0; done")
    gone = dash_host.root / "w" / WORKSPACE.hash
    real = dash_host.tools / "cp"
    real.write_text("#!/bin/sh\necho 'cp: it has gone' >&2\nexit 1\n")
    real.chmod(0o755)
    prepare(dash_host, request)
    ended = dash_host.wait(request.token)
    real.unlink()
    assert (ended.state, ended.cause) == (S.NOSTART, "workspace")
    assert "it has gone" in ended.log_tail
    assert gone.exists()


def test_a_full_disk_has_its_own_cause(dash_host: WorkerHost) -> None:
    request = asks(dash_host, "true")
    full = dash_host.tools / "cp"
    full.write_text("#!/bin/sh\necho 'cp: x: No space left on device' >&2\nexit 1\n")
    full.chmod(0o755)
    prepare(dash_host, request)
    ended = dash_host.wait(request.token)
    full.unlink()
    assert (ended.state, ended.cause) == (S.NOSTART, "disk")


def test_a_set_up_without_a_workspace_runs_once_too(worker: WorkerHost, tmp_path: Path) -> None:
    requests = [
        worker.request("sh", "-c", "cat made; ls -A | wc -l", setup=counting(tmp_path)) for _ in range(2)
    ]
    ready(worker, *requests, asks(worker, "true", setup=counting(tmp_path)))
    ready(worker, again := worker.request("touch", "made", setup=counting(tmp_path)))
    assert lines(tmp_path / "runs") == 2, "once with the workspace, once without"
    assert len(list((worker.root / "s").iterdir())) == 2
    worker.go(again.token)
    assert worker.wait(again.token).exit_code == 0, "its copy is its own"


def test_the_parts_for_workspaces_are_sent_only_with_these() -> None:
    plain = worker_script("prepare", [], HostPaths())
    assert b"w/$" not in plain
    assert len(plain) < len(worker_script("prepare_with", [], HostPaths())) - 2000


def test_names_are_kept_whatever_they_are(host: WorkerHost) -> None:
    def fill(a: Archive) -> None:
        for name in (
            "-rf",
            "a b",
            "'quote\"",
            "$(touch x)",
            "*",
            ".dot",
            "ünï/cödé",
            "back\\slash",
            "x" * 200,
        ):
            a.file(name, name.encode())

    sent = shipment(archive(fill))
    ship(host, sent)
    request = asks(host, "true", sent=sent)
    ready(host, request)
    assert sorted(os.listdir(work(host, request.token))) == sorted(
        ["-rf", "a b", "'quote\"", "$(touch x)", "*", ".dot", "ünï", "back\\slash", "x" * 200]
    )
