"""Two concurrent processes, one of them paused at a critical moment: interleavings that are rare in races."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.transport import Script, ScriptResult, Target
from iris_cli.remote.worker_script import HostPaths, worker_script
from tests.remote.conftest import ProbedHost
from tests.support.gates import Gate
from tests.support.local_transport import LocalTransport
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, is_alive, marked, pids_in, start_ticks


def halt(arrived: Path, gate: Path) -> str:
    """Return a step that reports that it was reached, and waits for the gate."""
    return f": >{arrived}; while [ ! -e {gate} ]; do sleep 0.1; done"


class Halting(LocalTransport):
    """A transport whose scripts wait at a gate before a step."""

    def __init__(self, host: WorkerHost, step: str, halt: str) -> None:
        super().__init__(host.transport.home, host.tools)
        self.step, self.halt = step.encode(), halt.encode()

    def run(self, target: Target, script: Script) -> ScriptResult:
        assert script.text.count(self.step) == 1
        halting = script.text.replace(self.step, self.halt + b"; " + self.step)
        return super().run(target, replace(script, text=halting))


@pytest.mark.parametrize(
    "step",
    [
        "if ! claim go; then",  # the wrapper has started and done nothing yet
        "write_pid pid ||",  # it has made `go` and has no `pid` yet
        "if [ -e cancel ] || [ ! -e x.pending ]; then record",  # it has written `pid` and has not tested `cancel` yet
    ],
)
def test_a_stop_that_overtakes_the_wrapper_keeps_the_command_from_starting(
    host: WorkerHost, tmp_path: Path, step: str
) -> None:
    request = host.request("touch", str(tmp_path / "ran"))
    host.prepare(request)
    arrived, gate = tmp_path / "arrived", tmp_path / "gate"
    (run,) = host.attempt_dir(request.token).glob("run.*")
    before, _, after = run.read_text().partition(step)
    run.write_text(f"{before}{halt(arrived, gate)}\n{step}{after}")
    starting = threading.Thread(target=host.go, args=[request.token])
    starting.start()
    until(arrived.exists)
    assert host.stop(request.token, grace=1_000).state in (RemoteState.STOPPING, RemoteState.STOPPED)
    gate.touch()
    assert host.wait(request.token, {RemoteState.STOPPED}).state is RemoteState.STOPPED
    starting.join(PATIENCE)
    assert not marked(request.token)
    assert not (tmp_path / "ran").exists()


def test_a_wrapper_that_sees_cancel_alone_does_not_start_the_command(
    host: WorkerHost, tmp_path: Path
) -> None:
    """As during a stop that has only made `cancel`."""
    request = host.request("touch", str(tmp_path / "ran"))
    host.prepare(request)
    directory = host.attempt_dir(request.token)
    (directory / "cancel").touch()
    host.go(request.token)
    assert host.state(request.token) is RemoteState.PREPARED
    subprocess.run(
        ["sh", str(directory / "run"), "start"], check=False, env=host.transport.env, timeout=PATIENCE
    )
    assert host.state(request.token) is RemoteState.CANCELLED
    assert not (tmp_path / "ran").exists()
    assert host.stop(request.token).state is RemoteState.CANCELLED


def test_a_set_up_that_was_overtaken_by_a_stop_does_not_run(probed_host: ProbedHost, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", "after", "ln", "setup.pid.*")
    slow, host = probed_host(tools=gate.tools), probed_host()
    request = slow.request("true", setup=f"touch {tmp_path}/set-up")
    slow.prepare(request)
    gate.wait()
    host.stop(request.token, grace=1_000)
    gate.open()
    assert host.wait(request.token, {RemoteState.STOPPED}).state is RemoteState.STOPPED
    assert not marked(request.token)
    assert not (tmp_path / "set-up").exists()


def test_a_slow_second_launch_leaves_no_secret_behind_and_starts_nothing(
    probed_host: ProbedHost, tmp_path: Path
) -> None:
    slow, host = probed_host(), probed_host()
    arrived, gate = tmp_path / "arrived", tmp_path / "gate"
    slow.runner._transport = Halting(slow, 'text="# $nonce $boot', halt(arrived, gate))
    request = slow.request("sh", "-c", 'echo $$ >>"$0"', str(tmp_path / "starts"), env={"SECRET": "canary"})
    launching = threading.Thread(target=slow.prepare, args=[request], kwargs={"go": True})
    launching.start()
    until(arrived.exists)
    host.prepare(request, go=True)
    assert host.wait(request.token).state is RemoteState.EXITED
    gate.touch()
    launching.join(PATIENCE)
    directory = host.attempt_dir(request.token)
    assert [path for path in directory.rglob("*") if path.is_file() and b"canary" in path.read_bytes()] == []
    assert not host.secrets(request.token)
    assert [len(list(directory.glob(f"{name}.*"))) for name in ("cmd", "env", "run")] == [1, 1, 1]
    assert host.state(request.token) is RemoteState.EXITED
    assert len(pids_in(tmp_path / "starts")) == 1


def test_a_launch_that_died_while_it_wrote_the_deciding_file_is_finished_by_the_next(
    host: WorkerHost, tmp_path: Path
) -> None:
    request = host.request("sh", "-c", 'echo $$ >>"$0"', str(tmp_path / "starts"), env={"SECRET": "canary"})
    host.prepare(request)
    (host.attempt_dir(request.token) / "run").write_text("")
    assert host.state(request.token) is RemoteState.PREPARING
    host.prepare(request, go=True)
    assert host.wait(request.token).state is RemoteState.EXITED
    host.prepare(request, go=True)
    assert not host.secrets(request.token)
    assert len(pids_in(tmp_path / "starts")) == 1


def test_a_launch_that_was_overtaken_by_a_tombstone_finds_it(probed_host: ProbedHost, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", "before", "mkdir", "[0-9a-f]" * 32 + "*")
    slow, host = probed_host(tools=gate.tools), probed_host()
    request = slow.request("touch", str(tmp_path / "ran"))
    launching = threading.Thread(target=slow.prepare, args=[request], kwargs={"go": True})
    launching.start()
    gate.wait()
    assert host.stop(request.token).state is RemoteState.STOPPED
    gate.open()
    launching.join(PATIENCE)
    assert host.state(request.token) is RemoteState.STOPPED
    assert host.attempt_dir(request.token).is_file()
    assert not (tmp_path / "ran").exists()


def test_a_tombstone_that_was_overtaken_by_a_launch_stops_it(probed_host: ProbedHost, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", "before", "link", "*")
    slow, host = probed_host(tools=gate.tools), probed_host()
    request = host.request("sleep", "1000")
    stopping = threading.Thread(target=slow.stop, args=[request.token])
    stopping.start()
    gate.wait()
    host.prepare(request, go=True)
    host.wait(request.token, {RemoteState.RUNNING})
    gate.open()
    stopping.join(PATIENCE)
    assert host.wait(request.token, {RemoteState.STOPPED}).state is RemoteState.STOPPED
    assert not marked(request.token)
    assert not (host.attempt_dir(request.token) / "spare").exists()


def run_library(host: WorkerHost, body: str) -> str:
    """Run functions of the library in the directory of the attempts, as a poll does."""
    lines = [f"nonce={'0' * 32}", 'open_frame "$nonce" "$HOME/.iris" c1 w0', body]
    script = worker_script("poll", lines, HostPaths())
    env = host.transport.env
    done = subprocess.run(
        ["sh", "-s"], input=script, capture_output=True, env=env, check=True, timeout=PATIENCE
    )
    return done.stdout.decode().strip()


def test_an_end_that_is_recorded_while_the_names_are_read_is_not_lost(host: WorkerHost) -> None:
    """The wrapper records the end and dies after a poll has read the names, and before it checks the wrapper."""
    token = host.running("sleep", "1000")
    end = f"mv {token}/reserve.end {token}/end.1.7; mv {token}/x.pending {token}/x.7"
    pids = " ".join(map(str, marked(token)))
    # SIGSTOP first: otherwise the wrapper would replace the end above by that of its task.
    gone = f"for pid in {pids}; do while grep -q . /proc/$pid/cmdline; do sleep 0.01; done; done"
    die = f"kill -STOP {pids}; kill -KILL {pids}; {gone}"
    racing = f"is_alive() {{ {{ {end}; {die}; }} 2>/dev/null; return 1; }}"
    assert run_library(host, f"{racing}; read_state {token}; echo $state $record_code") == "EXITED 7"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_signal_is_sent_only_to_the_same_process(
    host: WorkerHost, bystander: subprocess.Popen[bytes]
) -> None:
    """The pid may be reused between the search and the signal."""
    pid, start = bystander.pid, start_ticks(bystander.pid)
    run_library(host, f"signal KILL {pid}:{int(start) - 1} {pid}:{start}0 {pid}:")
    assert is_alive(pid)
    run_library(host, f"signal KILL {pid}:{start}")
    until(lambda: not is_alive(pid))


def test_a_number_that_was_seen_before_is_only_the_same_process_with_the_same_start(
    host: WorkerHost, bystander: subprocess.Popen[bytes]
) -> None:
    pid, start, token = bystander.pid, start_ticks(bystander.pid), "f" * 32
    scan = 'self_pid; scan {} "{}" "{}" "$self" && echo "found:$found"'
    for wrong in (f"{pid}:{int(start) - 1}", f"{pid}:{start}1", f"{pid}:"):
        assert run_library(host, scan.format(token, "", wrong)) == "found:"
        assert run_library(host, scan.format(token, wrong, "")) == "found:"
    assert run_library(host, scan.format(token, "", f"{pid}:{start}")) == f"found:{pid}:{start}"


def test_a_process_list_without_the_caller_is_ignored(host: WorkerHost) -> None:
    assert (
        run_library(host, f'scan {"f" * 32} "" "" 99999999 && echo "found:$found" || echo blind') == "blind"
    )
    broken = "has_only_wrappers() { return 1; }; print_processes() { printf 'complete\\n'; }"
    assert run_library(host, f'{broken}; self_pid; scan {"f" * 32} "" "" "$self" || echo blind') == "blind"
    cut = "search() { return 1; }"
    assert run_library(host, f'{cut}; self_pid; scan {"f" * 32} "" "" "$self" || echo blind') == "blind"


def test_a_process_that_ends_while_its_entry_is_read_does_not_hide_the_others(
    host: WorkerHost, bystander: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Then reading its open file fails, as reading this `stat` does: the first address is never mapped."""
    proc = tmp_path / "proc"
    (proc / "1").mkdir(parents=True)
    (proc / "1" / "stat").symlink_to("/proc/self/mem")
    for name in ("self", "uptime", str(bystander.pid)):
        (proc / name).symlink_to(f"/proc/{name}")
    seen = f"{bystander.pid}:{start_ticks(bystander.pid)}"
    scan = f'scan {"f" * 32} "" {seen} "$self" && echo "found:$found" || echo blind'
    link = f'iris_proc={proc}; self_pid; ln -s "/proc/$self" {proc}'
    assert run_library(host, f"{link}; {scan}") == f"found:{seen}"
    cut = 'exec_search() { case $1 in xargs) return 125 ;; *) exec "$@" 2>/dev/null ;; esac; }'
    assert run_library(host, f"{cut}; self_pid; {scan}") == "blind"
