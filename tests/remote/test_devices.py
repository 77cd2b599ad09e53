"""Devices for a start: free chips, free ports, no stale lock file."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.core.messages.observations import AttemptReport, RemoteState
from tests.remote.conftest import ProbedHost
from tests.support.devices import HOLD, Devices
from tests.support.gates import Gate
from tests.support.waiting import PATIENCE, until
from tests.support.worker_host import WorkerHost, command_line, is_alive, kill, marked, pids_in

SETTLED = {RemoteState.PREPARED, RemoteState.NOSTART, RemoteState.LOST, RemoteState.CANCELLED}
NO_CHIPS = (RemoteState.NOSTART, "chips")


@pytest.fixture
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devices]:
    made = Devices(tmp_path_factory.mktemp("d"))  # a short name: only the end of the message is reported
    yield made
    made.release()


@pytest.fixture
def tpu_host(host_shell: str, probed_host: ProbedHost, devices: Devices) -> WorkerHost:
    """A probed worker with chips."""
    return probed_host(host_shell, paths=devices.paths)


@pytest.fixture
def dash_tpu_host(probed_host: ProbedHost, devices: Devices) -> WorkerHost:
    return probed_host(paths=devices.paths)


def settled(host: WorkerHost, **settings: object) -> AttemptReport:
    """Prepare an attempt that needs the chips, and wait until it is PREPARED or has ended."""
    request = host.request("true", **{"exclusive": True, "device_wait": 0.0} | settings)
    host.prepare(request)
    return host.wait(request.token, SETTLED)


def test_a_start_waits_in_its_setup_until_the_chips_are_free(
    tpu_host: WorkerHost, devices: Devices, tmp_path: Path
) -> None:
    host = tpu_host
    holder = devices.hold()
    request = host.request("touch", str(tmp_path / "ran"), exclusive=True, device_wait=1000)
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.PREPARING
    until((host.attempt_dir(request.token) / "setup.pid").exists)
    (report,) = host.prepare(request, go=True)
    assert report.state is RemoteState.PREPARING
    assert not (tmp_path / "ran").exists()
    kill(holder)
    assert host.wait(request.token, SETTLED).state is RemoteState.PREPARED
    host.go(request.token)
    assert host.wait(request.token).state is RemoteState.EXITED
    assert (tmp_path / "ran").exists()


def test_chips_count_as_held_while_the_processes_cannot_be_listed(
    dash_tpu_host: WorkerHost, tmp_path: Path
) -> None:
    host = dash_tpu_host
    killed_ls = tmp_path / "ls"
    killed_ls.write_text("#!/bin/sh\nkill -9 $$\n")
    killed_ls.chmod(0o755)
    path = host.transport.env["PATH"]
    host.transport.env["PATH"] = f"{tmp_path}:{path}"
    report = settled(host)
    assert (report.state, report.cause) == NO_CHIPS
    host.transport.env["PATH"] = path
    assert settled(host).state is RemoteState.PREPARED


def test_chips_that_stay_held_are_a_no_start_that_names_their_holders(
    tpu_host: WorkerHost, devices: Devices
) -> None:
    first, second = devices.hold(), devices.hold(devices.chips[1])
    report = settled(tpu_host, setup="echo never")
    assert (report.state, report.cause) == NO_CHIPS
    start, *named = report.log_tail.removesuffix("\n").split(" process ")
    name = Path(f"/proc/{first}/comm").read_text().strip()
    assert start == "iris: not started: the chips of this host are held by"
    assert sorted(text.rstrip(",") for text in named) == sorted(
        f"{pid} ({name}) on {path} that iris did not start"
        for pid, path in zip((first, second), devices.chips, strict=True)
    )
    devices.release()
    assert settled(tpu_host, setup="echo now").state is RemoteState.PREPARED


def test_a_set_up_that_waited_for_chips_has_its_full_time_limit(
    tpu_host: WorkerHost, devices: Devices
) -> None:
    holder = devices.hold()
    request = tpu_host.request(
        "true", exclusive=True, device_wait=1000, setup="sleep 1000", setup_timeout=0.3, grace=0.5
    )
    tpu_host.prepare(request)
    # It pauses between two searches: it has found the holder.
    until(lambda: any("sleep" in command_line(pid) for pid in marked(request.token)))
    kill(holder)
    report = tpu_host.wait(request.token, SETTLED)
    assert (report.state, report.cause) == (RemoteState.NOSTART, "setup")


def test_tasks_without_chips_do_not_wait_for_them(dash_tpu_host: WorkerHost, devices: Devices) -> None:
    devices.hold()
    assert dash_tpu_host.ended("true", device_wait=1000).state is RemoteState.EXITED


def test_a_start_that_waits_can_be_stopped(tpu_host: WorkerHost, devices: Devices, tmp_path: Path) -> None:
    holder = devices.hold()
    request = tpu_host.request("touch", str(tmp_path / "ran"), exclusive=True, device_wait=1000)
    tpu_host.prepare(request, go=True)
    assert tpu_host.stopped(request.token).state is RemoteState.STOPPED
    kill(holder)
    tpu_host.prepare(request, go=True)
    assert tpu_host.state(request.token) is RemoteState.STOPPED
    assert not marked(request.token)
    assert not (tmp_path / "ran").exists()


def test_chips_that_are_taken_after_the_setup_are_a_no_start(
    tpu_host: WorkerHost, devices: Devices, tmp_path: Path
) -> None:
    request = tpu_host.request("touch", str(tmp_path / "ran"), exclusive=True, setup="true")
    tpu_host.prepare(request)
    assert tpu_host.wait(request.token, SETTLED).state is RemoteState.PREPARED
    devices.hold()
    tpu_host.go(request.token)
    report = tpu_host.wait(request.token)
    assert (report.state, report.cause) == NO_CHIPS
    assert not (tmp_path / "ran").exists()
    assert not (tpu_host.attempt_dir(request.token) / "env").exists()


def test_processes_of_an_ended_attempt_that_hold_a_device_are_killed(
    tpu_host: WorkerHost, devices: Devices
) -> None:
    token = tpu_host.launch("true")
    tpu_host.wait(token)
    holder = devices.hold("deaf", env={**os.environ, "IRIS_ATTEMPT_TOKEN": token})
    assert settled(tpu_host, device_wait=1000).state is RemoteState.PREPARED
    assert not is_alive(holder)


def test_processes_of_a_live_attempt_are_reported_and_not_touched(
    dash_tpu_host: WorkerHost, devices: Devices, tmp_path: Path
) -> None:
    host = dash_tpu_host
    pid = tmp_path / "pid"
    token = host.running(sys.executable, "-c", HOLD, str(pid), devices.chips[0])
    until(lambda: pids_in(pid))
    report = settled(host, device_wait=0.5)
    assert (report.state, report.cause) == NO_CHIPS
    assert report.log_tail.endswith(f" on {devices.chips[0]} of attempt {token} (RUNNING here)\n")
    assert is_alive(pids_in(pid)[0])
    stranger = "5" * 32
    other = devices.hold(devices.chips[1], env={**os.environ, "IRIS_ATTEMPT_TOKEN": stranger})
    assert f"process {other} " in settled(host).log_tail
    assert f"of attempt {stranger} (unknown here)" in settled(host).log_tail
    assert is_alive(other)


def test_a_holder_without_its_wrapper_is_named_as_an_orphan(
    dash_tpu_host: WorkerHost, devices: Devices, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    token = dash_tpu_host.running(sys.executable, "-c", HOLD, str(pid), devices.chips[0])
    until(lambda: pids_in(pid))
    kill(dash_tpu_host.wrapper(token))
    until(lambda: not is_alive(dash_tpu_host.wrapper(token)))
    assert f"of attempt {token} (ORPHANED here)" in settled(dash_tpu_host).log_tail


def test_the_name_of_a_holder_cannot_mislead_a_terminal(dash_tpu_host: WorkerHost, devices: Devices) -> None:
    rename = "open('/proc/self/comm', 'wb').write(b'\\x1b[2J) \\xff\\n(')\n"
    pid = devices.hold(program=rename + HOLD)
    assert f"held by process {pid} (?[2J) ? () on " in settled(dash_tpu_host).log_tail


def test_a_device_that_is_not_a_chip_can_be_in_use(dash_tpu_host: WorkerHost, devices: Devices) -> None:
    devices.hold(str(devices.dev / "vfio/vfio"))
    assert settled(dash_tpu_host).state is RemoteState.PREPARED


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as made:
        try:
            made.bind((request.param, 0))
        except OSError:
            pytest.skip("no such address here")
        made.listen()
        yield made


def test_a_port_in_use_is_waited_for_and_then_prevents_the_start(
    host: WorkerHost, listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    refused = host.request("true", ports=(1, port), device_wait=0)
    waiting = host.request("true", ports=(1, port), device_wait=1000)
    host.prepare(refused, waiting)
    report = host.wait(refused.token, SETTLED)
    assert (report.state, report.cause) == (RemoteState.NOSTART, "port")
    said = f"iris: not started: port {port} is in use by process {os.getpid()} "
    assert report.log_tail.startswith(said), report.log_tail
    assert host.state(waiting.token) is RemoteState.PREPARING
    listener.close()
    assert host.wait(waiting.token, SETTLED).state is RemoteState.PREPARED


def test_a_stale_lock_file_is_removed_right_before_the_start(tpu_host: WorkerHost, devices: Devices) -> None:
    devices.lock.touch()
    request = tpu_host.request("test", "!", "-e", str(devices.lock), exclusive=True)
    tpu_host.prepare(request)
    assert devices.lock.exists()
    tpu_host.go(request.token)
    assert tpu_host.wait(request.token).exit_code == 0


def test_a_lock_file_is_kept_while_it_or_a_chip_is_in_use(tpu_host: WorkerHost, devices: Devices) -> None:
    devices.lock.touch()
    holder = devices.hold()
    assert settled(tpu_host).state is RemoteState.NOSTART
    assert devices.lock.exists()
    kill(holder)
    devices.hold(str(devices.lock))
    assert tpu_host.ended("true", exclusive=True).exit_code == 0
    assert devices.lock.exists()
    assert tpu_host.ended("true").exit_code == 0


@pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "another user's"])
def test_a_lock_file_that_is_not_ours_is_left_alone(
    tpu_host: WorkerHost, devices: Devices, kind: str
) -> None:
    target = devices.directory / "target"
    if kind == "directory":
        devices.lock.mkdir()
    elif kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        devices.lock.touch()
        os.chown(devices.lock, 12345, -1)
    else:
        devices.lock.symlink_to(target)
        if kind == "link":
            target.touch()
    assert tpu_host.ended("true", exclusive=True).exit_code == 0
    assert os.path.lexists(devices.lock)
    assert target.exists() is (kind == "link")


@pytest.mark.parametrize("arguments", ["setup.pid.*", "ready.pending?ready.off"])
def test_a_failed_wait_for_chips_ends_no_other_attempt(
    probed_host: ProbedHost, devices: Devices, tmp_path: Path, arguments: str
) -> None:
    """The chips become free just before the wait ends, and a second call starts the attempt."""
    command = "ln" if arguments.startswith("setup") else "mv"
    gate = Gate(tmp_path / "gate", "before", command, arguments)
    slow, host = (probed_host(tools=tools, paths=devices.paths) for tools in (gate.tools, None))
    holder = devices.hold()
    go_on = tmp_path / "go-on"
    request = slow.request(
        "sh", "-c", f"while [ ! -e {go_on} ]; do sleep 0.1; done", exclusive=True, device_wait=0.0
    )
    first = threading.Thread(target=slow.prepare, args=[request])
    first.start()
    gate.wait()
    kill(holder)
    if command == "mv":  # the set-up has started: it becomes ready when the chips are free
        first.join(PATIENCE)
        assert host.prepare(request, go=True)[0].state is RemoteState.PREPARING
        (host.attempt_dir(request.token) / "ready.pending").rename(host.attempt_dir(request.token) / "ready")
        host.go(request.token)
    else:
        host.prepare(request, go=True)
    host.wait(request.token, {RemoteState.RUNNING})
    gate.open()
    first.join(PATIENCE)
    wrapper = host.wrapper(request.token)
    until(lambda: all(pid == wrapper or is_child_of(pid, wrapper) for pid in marked(request.token)))
    assert host.state(request.token) is RemoteState.RUNNING
    go_on.touch()
    assert host.wait(request.token).exit_code == 0


def is_child_of(pid: int, parent: int) -> bool:
    """Return True if it descends from that process, or has ended."""
    while pid > 1:
        try:
            text = Path("/proc", str(pid), "stat").read_text(errors="replace")
        except OSError:
            return True
        pid = int(text.rpartition(") ")[2].split()[1])
        if pid == parent:
            return True
    return False


def test_a_wait_whose_process_was_killed_is_lost(dash_tpu_host: WorkerHost, devices: Devices) -> None:
    devices.hold()
    request = dash_tpu_host.request("true", exclusive=True, device_wait=1000)
    dash_tpu_host.prepare(request)
    path = dash_tpu_host.attempt_dir(request.token) / "setup.pid"
    until(path.exists)
    kill(int(path.read_text().split()[0]))
    for pid in marked(request.token):
        kill(pid)
    assert dash_tpu_host.wait(request.token, SETTLED).state is RemoteState.LOST
