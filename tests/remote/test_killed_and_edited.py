"""kill -9 by others, and edited directories: an unknown end never counts as a success."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from iris_cli.core.messages.observations import RemoteState
from tests.support.waiting import until
from tests.support.worker_host import FINAL, WorkerHost, is_alive, kill, marked, pids_in, until_gone

WAIT_FOR_GATE = 'while [ ! -e "$0" ]; do sleep 0.1; done; exit "$1"'
OTHER_GROUP = """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        with open(sys.argv[1], "a") as file:
            print(os.getpid(), file=file)
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


def session_of(host: WorkerHost, token: str) -> list[int]:
    """Return the processes of the wrapper's session, the wrapper first, as it must not see the end of its task."""
    wrapper = int((host.root / "a" / token / "pid").read_text().split()[0])
    others = []
    for pid in marked(token) - {wrapper}:  # type: ignore[arg-type]  # a token
        try:
            if os.getsid(pid) == wrapper:
                others.append(pid)
        except ProcessLookupError:
            continue
    return [wrapper, *others]


def test_a_process_outside_a_killed_session_is_an_orphan_and_can_be_stopped(
    host: WorkerHost, tmp_path: Path
) -> None:
    script = 'setsid sleep 1000 & echo $! >>"$0"; sleep 1000'
    token = host.running("sh", "-c", script, str(tmp_path / "pids"))
    until(lambda: pids_in(tmp_path / "pids"))
    (stray,) = pids_in(tmp_path / "pids")
    until(lambda: os.getsid(stray) == stray)
    for pid in session_of(host, token):
        kill(pid)
    assert host.wait(token, FINAL | {RemoteState.ORPHANED}).state is RemoteState.ORPHANED
    assert is_alive(stray)
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(stray)


def test_an_orphan_that_succeeds_is_lost(host: WorkerHost, tmp_path: Path) -> None:
    token = host.running("sh", "-c", WAIT_FOR_GATE, str(tmp_path / "gate"), "0")
    kill(host.wrapper(token))
    assert host.wait(token, {RemoteState.ORPHANED}).exit_code is None
    (tmp_path / "gate").touch()
    report = host.wait(token)
    assert (report.state, report.exit_code) == (RemoteState.LOST, None)
    assert host.stopped(token).state is RemoteState.STOPPED


def test_a_child_that_forked_twice_and_left_the_process_group_is_ended(
    host: WorkerHost, tmp_path: Path
) -> None:
    token = host.running(sys.executable, "-c", OTHER_GROUP, str(tmp_path / "pids"))
    until(lambda: pids_in(tmp_path / "pids"))
    (child,) = pids_in(tmp_path / "pids")
    assert os.getpgid(child) not in (child, host.wrapper(token))
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not is_alive(child)
    assert not marked(token)


EDITS = (
    "rm begin.*",
    "rm go",
    "rm pid",
    "rm x.pending reserve.end begin.* launch.*",
    "rm stop.idle",
    "rm run cmd.* setup.*",
    "touch stop.stuck.1.1",
    "touch cancel",
    "rm out err",
    "rm *.pending reserve.* pid go",
)


def test_an_edited_directory_never_turns_a_failure_into_a_success_or_hides_processes(
    dash_host: WorkerHost, tmp_path: Path
) -> None:
    """Edited by a person, by a task, or by a repair of the file system."""
    gate, healthy = tmp_path / "gate", dash_host.running("sleep", "1000")
    requests = [dash_host.request("sh", "-c", WAIT_FOR_GATE, str(gate), "3", grace=1.0) for _ in EDITS]
    dash_host.prepare(*requests, go=True)
    edited = {request.token: edit for request, edit in zip(requests, EDITS, strict=True)}
    dash_host.wait_for_all(list(edited), {RemoteState.RUNNING})
    for token in edited:
        dash_host.wait_for_program(token)
    for token, edit in edited.items():
        assert os.system(f"cd {dash_host.attempt_dir(token)} && {{ {edit}; }}") == 0
    ends = (RemoteState.EXITED, RemoteState.LOST, RemoteState.NOSTART)
    for report in dash_host.poll(*edited):
        assert report.state not in ends, edited[report.token]
    gate.touch()
    for token in edited:
        until_gone(token)
    *reports, other = dash_host.poll(*edited, healthy)
    for report in reports:
        if report.state is RemoteState.EXITED:
            assert report.exit_code == 3, edited[report.token]
    assert other.state is RemoteState.RUNNING
    dash_host.runner.stop(dash_host.target, [(token, 0.0) for token in edited])
    dash_host.wait_for_all(list(edited), FINAL - {RemoteState.LOST})
    assert dash_host.state(healthy) is RemoteState.RUNNING


def test_an_end_that_was_edited_is_lost(dash_host: WorkerHost) -> None:
    edits = ("mv x.3 x.0", "mv x.3 x.0.oom", "rm x.3; touch x.0", "mv end.*.3 end.5.0")
    reports = dash_host.all_ended(*(dash_host.request("sh", "-c", "exit 3") for _ in edits))
    edited = {report.token: edit for report, edit in zip(reports, edits, strict=True)}
    for token, edit in edited.items():
        assert os.system(f"cd {dash_host.attempt_dir(token)} && {{ {edit}; }}") == 0
    for report in dash_host.poll(*edited):
        assert report.state is RemoteState.LOST, edited[report.token]


def test_its_time_limit_ends_it_at_once_all_the_same(dash_host: WorkerHost) -> None:
    report = dash_host.ended("sh", "-c", "rm ../pid; sleep 1000", timeout=1.0, grace=600.0)
    assert (report.state, report.cause) == (RemoteState.EXITED, "timeout")


def test_an_attempt_runs_until_its_last_process_ends_and_can_be_stopped(host: WorkerHost) -> None:
    token = host.running("sh", "-c", "rm ../pid; sleep 1000", grace=600.0)
    until(lambda: not (host.attempt_dir(token) / "pid").exists())
    assert host.state(token) is RemoteState.RUNNING
    assert host.stopped(token, grace=600.0).state is RemoteState.STOPPED
    until_gone(token)
