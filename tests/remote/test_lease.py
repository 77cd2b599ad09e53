"""Leases: a task that was not polled for that long, by the worker's uptime, is stopped."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from tests.remote.conftest import MakeHost
from tests.support.local_transport import tools_of
from tests.support.waiting import LIMITS, until
from tests.support.worker_host import FINAL, WorkerHost, is_alive, kill, marked, pids_in

LONG = 100_000.0
STUBBORN = ("sh", "-c", 'trap "" TERM; echo $$ >>"$0"; while :; do sleep 1; done')
STRAY = ("sh", "-c", 'trap "exit 0" TERM; (setsid sleep 1000 & echo $! >>"$0"); while :; do sleep 0.2; done')
CANCELLED_BY_LEASE = (RemoteState.CANCELLED, None, "lease")


def run_out(host: WorkerHost, token: Token) -> tuple[RemoteState, int | None, str]:
    """Wait for the end of an attempt without renewing its lease."""
    report = host.wait(token, renew=False)
    return report.state, report.exit_code, report.cause


def leased(host: WorkerHost, *argv: str) -> tuple[Token, float]:
    """Return a running attempt with the shortest lease that this machine allows, and that lease."""
    for lease in LIMITS[1:]:
        token = host.launch(*argv, lease=lease, grace=60)
        report = host.wait(token, {RemoteState.RUNNING, *FINAL})
        if report.state is RemoteState.RUNNING:
            return token, lease
        assert (report.state, report.cause) == (RemoteState.CANCELLED, "lease")
    raise AssertionError("no lease was long enough for the start")


def lease_of(host: WorkerHost, token: Token) -> str:
    names: list[str] = []

    def read() -> bool:
        """Read the lease's name; during a rename it may be listed twice or not at all."""
        names[:] = [path.name for path in host.attempt_dir(token).glob("lease.*")]
        return len(names) == 1

    until(read)
    return names[0]


def renewed_at(host: WorkerHost, token: Token) -> float:
    """Return the uptime in seconds."""
    return int(lease_of(host, token).removeprefix("lease.")) / 100


def test_an_unpolled_task_is_stopped_with_all_its_processes(host: WorkerHost, tmp_path: Path) -> None:
    token, _ = leased(host, *STRAY, str(tmp_path / "pids"))
    assert run_out(host, token) == CANCELLED_BY_LEASE
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids"))
    assert not marked(token)
    assert lease_of(host, token).startswith("lease.out.")
    assert host.poll(token)[0].ended_ago is not None
    assert host.stop(token).state is RemoteState.CANCELLED


def test_a_task_that_ignores_the_first_signal_is_killed_after_its_grace(
    host: WorkerHost, tmp_path: Path
) -> None:
    token = host.launch(*STUBBORN, str(tmp_path / "pids"), lease=0.5, grace=0.5)
    assert run_out(host, token) == CANCELLED_BY_LEASE
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids"))


def test_polls_keep_a_task_running(dash_host: WorkerHost) -> None:
    token, lease = leased(dash_host, "sleep", "1000")
    first = before = renewed_at(dash_host, token)
    while before < first + 1.5 * lease:
        asked = float(Path("/proc/uptime").read_text().split()[0])
        dash_host.poll(token)
        name = lease_of(dash_host, token)
        if name.startswith("lease.out."):  # this machine paused for so long
            assert int(name.removeprefix("lease.out.")) / 100 >= before + lease
            return
        before = renewed_at(dash_host, token)
        assert before >= asked
        time.sleep(lease / 4)


def test_a_poll_that_is_not_to_renew_changes_nothing(host: WorkerHost) -> None:
    token = host.running("sleep", "1000", lease=LONG)
    before = lease_of(host, token)
    assert host.poll(token, renew=False)[0].state is RemoteState.RUNNING
    assert lease_of(host, token) == before
    host.poll(token)
    until(lambda: host.poll(token) and lease_of(host, token) != before)


def test_only_the_attempts_that_a_poll_names_are_renewed(dash_host: WorkerHost) -> None:
    named, other = (dash_host.running("sleep", "1000", lease=LONG) for _ in range(2))
    before = lease_of(dash_host, named), lease_of(dash_host, other)
    until(lambda: dash_host.poll(named) and lease_of(dash_host, named) != before[0])
    assert lease_of(dash_host, other) == before[1]


def test_a_task_that_ends_within_its_lease_has_its_own_end(host: WorkerHost) -> None:
    token = host.launch("sh", "-c", "exit 3", lease=LONG)
    report = host.wait(token)
    assert (report.state, report.exit_code, report.cause) == (RemoteState.EXITED, 3, "")
    assert lease_of(host, token) == "lease.off"


def test_an_orphaned_attempt_is_stopped_by_its_lease(host: WorkerHost) -> None:
    token, _ = leased(host, "sleep", "1000")
    kill(host.wrapper(token))
    until(lambda: host.poll(token, renew=False)[0].state is not RemoteState.RUNNING)
    assert run_out(host, token) == CANCELLED_BY_LEASE
    assert not marked(token)


def test_a_wrapper_that_was_frozen_starts_nothing_after_its_lease(dash_host: WorkerHost) -> None:
    token, _ = leased(dash_host, "sleep", "1000")
    os.kill(dash_host.wrapper(token), signal.SIGSTOP)
    assert run_out(dash_host, token) == CANCELLED_BY_LEASE
    assert not marked(token)


def test_a_lease_whose_name_was_taken_away_runs_out(dash_host: WorkerHost) -> None:
    token, _ = leased(dash_host, "sleep", "1000")
    for path in dash_host.attempt_dir(token).glob("lease.*"):
        path.unlink()
    assert run_out(dash_host, token) == CANCELLED_BY_LEASE
    assert not marked(token)


def test_a_leased_task_can_be_stopped(host: WorkerHost) -> None:
    token = host.running("sleep", "1000", lease=LONG)
    assert host.stopped(token).state is RemoteState.STOPPED
    assert not marked(token)


@pytest.mark.soak
def test_without_its_watchdog_a_leased_task_is_not_started(make_host: MakeHost, tmp_path: Path) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    (tools / "setsid").write_text(
        '#!/bin/sh\ncase " $* " in *" lease "*) exit 1 ;; esac\nexec /usr/bin/setsid "$@"\n'
    )
    (tools / "setsid").chmod(0o755)
    host = make_host(tools=tools)
    host.probe()
    token = host.launch("touch", str(tmp_path / "ran"), lease=LONG)
    report = host.wait(token)
    assert (report.state, report.cause) == (RemoteState.NOSTART, "disk")
    assert not (tmp_path / "ran").exists()
