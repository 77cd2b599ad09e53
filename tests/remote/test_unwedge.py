"""Holders of chips: reported without changes; and exactly the chosen ones are ended, with proof."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.core.ids import JobId, TaskId, Token
from iris_cli.core.messages.observations import ChipHolder, LockFile, RemoteState, UnwedgeReport
from iris_cli.core.model.job import JobRequest
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cycle import cycle
from iris_cli.ops.jobs.launch import launch
from iris_cli.ops.session import Session
from iris_cli.ops.views.history import history
from iris_cli.ops.workers import unwedge as operation
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.devices import HOLD, Devices
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, is_alive, kill, marked, pids_in, start_ticks


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Devices]:
    made = Devices(tmp_path)
    yield made
    made.release()


@pytest.fixture
def host(host_shell: str, probed_host: ProbedHost, devices: Devices) -> WorkerHost:
    """A probed worker with chips."""
    return probed_host(host_shell, paths=devices.paths)


def unwedge(
    host: WorkerHost,
    *keep: Token,
    known: Sequence[Token] = (),
    clear: Sequence[ChipHolder | Token] = (),
    grace: float = 1000.0,
) -> UnwedgeReport:
    report = host.runner.unwedge(host.target, keep=keep, known=known, clear=clear, grace=grace)
    assert isinstance(report, UnwedgeReport), report
    return report


def holding(host: WorkerHost, devices: Devices, *words: str, prefix: Sequence[str] = ()) -> tuple[Token, int]:
    """Return a running attempt that holds a chip, and its process."""
    told = devices.directory / f"holder-of-{len(host.tokens)}"
    token = host.launch(*prefix, sys.executable, "-c", HOLD, str(told), *words)
    until(lambda: pids_in(told))
    devices.others += pids_in(told)
    return token, pids_in(told)[0]


def test_the_chosen_processes_are_ended_and_recorded_and_live_attempts_continue(
    make_host: MakeHost, devices: Devices, tmp_path: Path
) -> None:
    """The whole operation, with log and processes."""
    host = make_host("dash", paths=devices.paths)
    session = Session(
        state=StateDir(tmp_path / "state", now=time.time, actor="me@laptop"),
        config=ClusterConfig(
            path=tmp_path / "cluster.yaml",
            name="site",
            hosts=(HostConfig(worker=host.target.worker, connection=host.target.connection),),
        ),
        make_runner=lambda _: host.runner,
        command="iris test",
    )
    launch(session, JobRequest(name="ours", command=("sleep", "1000"), cpu=0.1))
    cycle.run(session)
    ours = session.cluster.tasks[TaskId(JobId("ours"), 0)].attempts[0].token
    host.tokens.append(ours)
    until(lambda: marked(ours))
    theirs = devices.hold()
    found = operation.find_obstacles(session, host.target.worker)
    assert [each.holder.pid for each in found.clearable if each.holder] == [theirs]
    assert operation.clear(session, found, grace=5.0).obstacles == ()
    assert not is_alive(theirs)
    assert marked(ours)
    told = [entry for entry in history(session).entries if entry.type == "WorkerUnwedged"]
    assert [entry.actor for entry in told] == ["me@laptop iris test"]
    assert told[0].text.startswith(
        f"stopping on worker {host.target.worker}: process {theirs}: {sys.executable}"
    )


def test_the_holders_are_named_with_their_attempts_and_nothing_is_changed(
    host: WorkerHost, devices: Devices, tmp_path: Path
) -> None:
    owned, of_owned = holding(host, devices, devices.chips[1])
    foreign = devices.hold(*devices.chips)
    report = unwedge(host, owned)
    assert {each.pid: each for each in report.holders} == {
        of_owned: ChipHolder(
            boot_id=host.boot_id,
            pid=of_owned,
            start=int(start_ticks(of_owned)),
            devices=(devices.chips[1],),
            command=command(of_owned),
            token=owned,
        ),
        foreign: ChipHolder(
            boot_id=host.boot_id,
            pid=foreign,
            start=int(start_ticks(foreign)),
            devices=tuple(devices.chips),
            command=command(foreign),
        ),
    }
    assert (report.boot_id, report.incarnation) == (host.boot_id, host.incarnation)
    assert (report.attempts, report.lock) == ((), LockFile.NONE)
    assert is_alive(of_owned)
    assert is_alive(foreign)


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:500]


def test_exactly_the_named_process_is_ended(host: WorkerHost, devices: Devices) -> None:
    named, other = devices.hold(), devices.hold()
    by_pid = {each.pid: each for each in unwedge(host).holders}
    unwedge(host, clear=[by_pid[named]])
    until(lambda: [each.pid for each in unwedge(host).holders] == [other])
    assert not is_alive(named)
    assert is_alive(other)


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(host: WorkerHost, devices: Devices) -> None:
    deaf = devices.hold("deaf")
    holders = unwedge(host).holders
    unwedge(host, clear=holders, grace=0.3)
    until(lambda: not unwedge(host).holders)
    assert not is_alive(deaf)


def test_a_chosen_process_that_lives_is_reported_even_without_a_device(
    host: WorkerHost, devices: Devices
) -> None:
    devices.lock.touch()
    deaf = devices.hold("deaf", str(devices.lock))
    named = ChipHolder(boot_id=host.boot_id, pid=deaf, start=int(start_ticks(deaf)))
    (still,) = unwedge(host, clear=[named]).holders
    assert (still.pid, still.devices) == (deaf, ())


def test_a_reused_pid_is_not_signalled(host: WorkerHost, devices: Devices) -> None:
    pid = devices.hold()
    (holder,) = unwedge(host).holders
    unwedge(host, clear=[replace(holder, start=1), replace(holder, boot_id="another-boot")], grace=0.0)
    evictor_is_done(host)
    assert is_alive(pid)


def evictor_is_done(host: WorkerHost) -> None:
    """Wait until no process started by calls to this worker is left."""
    until(lambda: not any(b"HOME=" + bytes(host.transport.home) in env for env in environments()))


def environments() -> Iterator[list[bytes]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                yield Path("/proc", entry, "environ").read_bytes().split(b"\0")
            except OSError:
                continue


def test_live_attempts_are_never_touched(host: WorkerHost, devices: Devices, tmp_path: Path) -> None:
    """The process of the second attempt hides its marker; it is found by the session of its wrapper."""
    marker, by_marker = holding(host, devices, devices.chips[0])
    session, by_session = holding(host, devices, devices.chips[1], prefix=["env", "-u", "IRIS_ATTEMPT_TOKEN"])
    report = unwedge(host, marker, session)
    assert {each.pid: each.token for each in report.holders} == {by_marker: marker, by_session: session}
    for clear in ([marker], report.holders):
        with pytest.raises(ValueError, match="to be kept"):
            unwedge(host, marker, session, clear=clear)
    unwedge(host, marker, session, clear=[replace(each, token=None) for each in report.holders], grace=0.0)
    victim = devices.hold()
    holders = [each for each in unwedge(host, marker, session).holders if each.pid == victim]
    unwedge(host, marker, session, clear=holders, grace=0.0)
    until(lambda: not is_alive(victim))
    assert is_alive(by_marker)
    assert is_alive(by_session)
    assert [each.state for each in host.poll(marker, session)] == [RemoteState.RUNNING] * 2


def test_attempts_unknown_to_the_log_are_reported_until_they_are_stopped(
    host: WorkerHost, tmp_path: Path
) -> None:
    owned, stranger = host.running("sleep", "1000"), host.running("sleep", "1000")
    ended, known = host.launch("true"), host.launch("true")
    host.wait(ended)
    host.wait(known)
    fenced = host.request("true").token
    host.stop(fenced)
    report = unwedge(host, owned, known=[known])
    assert {each.token: each.state for each in report.attempts} == {
        stranger: RemoteState.RUNNING,
        ended: RemoteState.EXITED,
    }
    unwedge(host, owned, known=[known], clear=[stranger, ended], grace=0.0)
    until(lambda: not unwedge(host, owned, known=[known]).attempts)
    assert not marked(stranger)
    assert [each.state for each in host.poll(owned, stranger, ended)] == [
        RemoteState.RUNNING,
        RemoteState.STOPPED,
        RemoteState.EXITED,
    ]
    assert set(host.probe().tokens) == {owned, known}


def test_a_known_attempt_that_has_not_ended_on_the_worker_is_reported(host: WorkerHost) -> None:
    token = host.running("sleep", "1000")
    assert [each.token for each in unwedge(host, known=[token]).attempts] == [token]


def test_a_missing_token_is_fenced(host: WorkerHost, tmp_path: Path) -> None:
    request = host.request("touch", str(tmp_path / "ran"))
    (report,) = unwedge(host, clear=[request.token]).attempts
    assert (report.token, report.state) == (request.token, RemoteState.STOPPED)
    host.prepare(request, go=True)
    assert host.state(request.token) is RemoteState.STOPPED
    assert not (tmp_path / "ran").exists()


def test_attempts_are_kept_also_where_their_directory_was_removed(
    host: WorkerHost, devices: Devices, tmp_path: Path
) -> None:
    owned, pid = holding(host, devices, devices.chips[0])
    host.root.rename(tmp_path / "elsewhere")
    (holder,) = unwedge(host, owned).holders
    assert (holder.pid, holder.token) == (pid, owned)
    unwedge(host, owned, clear=[replace(holder, token=None)], grace=0.0)
    evictors = [each for each in marked(owned) if each == pid]
    assert evictors == [pid]
    assert is_alive(pid)
    kill(pid)


def test_the_lock_file_is_reported(host: WorkerHost, devices: Devices) -> None:
    assert unwedge(host).lock is LockFile.NONE
    devices.lock.touch()
    assert unwedge(host).lock is LockFile.STALE
    holder = devices.hold()
    assert unwedge(host).lock is LockFile.HELD
    kill(holder)
    until(lambda: unwedge(host).lock is LockFile.STALE)
    devices.lock.unlink()
    devices.lock.symlink_to(devices.chips[0])
    assert unwedge(host).lock is LockFile.FOREIGN


def test_processes_that_cannot_be_inspected_are_counted(make_host: MakeHost, tmp_path: Path) -> None:
    """A host as an ordinary user sees it: one of the user's processes, another user's, and a kernel thread."""
    proc = tmp_path / "proc"
    for pid, parent in ((10, 1), (11, 1), (2, 0), (12, 2)):
        (proc / str(pid)).mkdir(parents=True)
        fields = f"S {parent}" + " 0" * 15 + " 1 0 77 0"
        (proc / str(pid) / "stat").write_text(f"{pid} (some) (name) {fields}\n")
    (proc / "10/fd").mkdir()
    (proc / "self").symlink_to("10")
    (proc / "uptime").write_text("5.00 5.00\n")
    host = make_host(paths=HostPaths(proc=str(proc), dev=str(tmp_path / "dev")))
    report = host.runner.unwedge(host.target, keep=[])
    assert isinstance(report, UnwedgeReport), report
    assert (report.holders, report.unseen) == ((), 1)
