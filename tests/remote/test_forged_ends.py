"""Tasks that edit the files of their attempt: no end counts while a process of the attempt is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import RemoteState
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import MakeHost, ProbedHost
from tests.support.held_poll import HeldPoll
from tests.support.local_transport import SHELLS, tools_of
from tests.support.waiting import LIMITS, until
from tests.support.worker_host import (
    FINAL,
    WorkerHost,
    is_alive,
    kill,
    marked,
    pids_in,
    start_ticks,
    until_gone,
)

ALIVE = {RemoteState.RUNNING, RemoteState.ORPHANED}

FORGERIES = {
    "the exit record is renamed": "mv x.pending x.0",
    "both records are renamed": "mv reserve.end end.1.0; mv x.pending x.0",
    "an exit record is added": ": >x.0",
    "a failure is recorded": "mv reserve.end end.1.3; mv x.pending x.3",
    "an exit record is a directory": "rm x.pending reserve.end; mkdir x.0 end.1.0",
    "an exit record is a link": "rm x.pending; ln -s /nowhere x.0; mkfifo end.1.0",
    "a cancellation is recorded": ": >cancel; mv x.pending x.cancelled",
    "the end of a lease is recorded": "mv x.pending x.cancelled.lease; : >lease.out.1",
    "a refusal is recorded": "mv x.pending x.nostart.disk",
    "a failed setup is recorded": "mv reserve.end end.1.1; mv x.pending x.nostart.setup",
    "the end of a stop is recorded": "mv stop.idle stop.done",
    "a success and the end of a stop are recorded": "mv x.pending x.0; mv reserve.end end.1.0; : >stop.done",
    "the pid is of another boot": "echo 1 2 another-boot >pid; mv x.pending x.0",
    "the pid is garbled": "echo garbled >pid; mv x.pending x.0; mv reserve.end end.1.0",
    "the pid is that of another process": 'echo "$BYSTANDER" >pid; mv x.pending x.0',
    "the pid is a directory": "rm pid; mkdir pid; mv x.pending x.0; mv reserve.end end.1.0",
    "the pid is a pipe": "rm pid; mkfifo pid; mv x.pending x.0; mv reserve.end end.1.0",
    "the start is undone": "rm go; rm begin.* pid; mv x.pending x.0; mv reserve.end end.1.0",
    "all files are removed": "rm -rf ./*",
    "the group is forgotten": "rm -f group; mv x.pending x.0; mv reserve.end end.1.0",
    "the directory is moved away": 'mv "$IRIS_TASK_DIR" "$ELSEWHERE"',
    "the directory is removed": 'rm -rf "$IRIS_TASK_DIR"',
    "the directory becomes a file": 'mv "$IRIS_TASK_DIR" "$ELSEWHERE"; : >"$IRIS_TASK_DIR"',
    "the directory becomes a pipe": 'mv "$IRIS_TASK_DIR" "$ELSEWHERE"; mkfifo "$IRIS_TASK_DIR"',
    "the directory becomes a broken link": 'mv "$IRIS_TASK_DIR" "$ELSEWHERE"; ln -s /nowhere "$IRIS_TASK_DIR"',
}

UNKNOWN = ("all files are removed", "the end of a lease is recorded")
"""After these forgeries the wrapper does not know the end either."""

SUCCESS = "mv reserve.end end.1.0; mv x.pending x.0"
"""A complete record of a success."""

WRAPPERS = {"lives": ":", "is killed": "kill -KILL $PPID", "is frozen": "kill -STOP $PPID"}

FORGE = 'cd "$IRIS_TASK_DIR"; eval "$1"; cd /; eval "$2"; : >"$0"; exec sleep 7030'
"""A script that becomes the program of the task by `exec`, so that its parent is the wrapper."""

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "a") as file:
            print(os.getpid(), file=file)
        os.execve("/bin/sleep", ["sleep", "7030"], {"A": "1"} if sys.argv[2] == "bare" else dict(os.environ))
    os._exit(0)
os.wait()
"""
"""A program that forks twice into a new session, with or without its environment."""

MakePlace = Callable[[bool, str], WorkerHost]


@pytest.fixture
def make_place(probed_host: ProbedHost, tmp_path: Path) -> MakePlace:
    """Makes a worker with control groups, or one without, with that shell."""

    def make(grouped: bool, shell: str) -> WorkerHost:
        if not grouped:
            return probed_host(shell, paths=HostPaths(sys=str(tmp_path / "no-groups")))
        if (host := probed_host(shell)).containment != "cgroup":
            pytest.skip("needs a control group (version 2) that can be written")
        return host

    return make


HOSTS = tuple(product(SHELLS, (True, False)))
"""Kinds of workers: a shell, with or without a control group."""

TURNS = (*(("dash", True), ("dash", False)) * 4, ("busybox", False), ("bash", True))
"""The kinds of workers in the default tests; dash is twice as fast."""


WRAPPER_TURNS = (*("lives", "is killed") * 3, "is frozen")
"""The fates of the wrapper in the default tests. A frozen one takes two seconds to end."""


def combinations() -> Iterator[object]:
    """Return each forgery with each fate of the wrapper on two of six kinds of workers; by default each forgery once.
    Cases with the same kind of worker run concurrently on one host.
    """
    once = [
        (TURNS[number % len(TURNS)], (forged, WRAPPER_TURNS[number % len(WRAPPER_TURNS)]))
        for number, forged in enumerate(FORGERIES)
    ]
    for turn, kind in enumerate(HOSTS):
        name = f"{'a' if kind[1] else 'no'} group, {kind[0]}"
        if own := [case for each, case in once if each == kind]:
            yield pytest.param(*kind, own, id=name)
        third = [
            (forged, happens)
            for (row, forged), (column, happens) in product(enumerate(FORGERIES), enumerate(WRAPPERS))
            if (row + column + turn) % 3 == 0
        ]
        yield pytest.param(*kind, third, marks=pytest.mark.soak, id=f"a third, {name}")


def forging(host: WorkerHost, tmp_path: Path, *cases: tuple[str, str]) -> list[Token]:
    """Return the tokens of tasks that have edited their files and continue. A case is a forgery and the fate of the
    wrapper.
    """
    bystander = f"{os.getpid()} {start_ticks(os.getpid())} {host.boot_id}"
    done, requests = [], []
    for number, (forgery, wrapper) in enumerate(cases):
        env = {"ELSEWHERE": str(tmp_path / f"elsewhere-{number}"), "BYSTANDER": bystander}
        done.append(tmp_path / f"done-{number}")
        requests.append(host.request("sh", "-c", FORGE, str(done[-1]), forgery, wrapper, env=env))
    host.prepare(*requests, go=True)
    until(lambda: all(path.exists() for path in done))
    return [request.token for request in requests]


def end_all_of(token: Token) -> None:
    """Kill every process of the attempt, the wrapper before it can record anything."""
    for name in (signal.SIGSTOP, signal.SIGKILL):
        for pid in marked(token):
            os.kill(pid, name)
    until_gone(token)


@pytest.mark.parametrize(("shell", "grouped", "cases"), list(combinations()))
def test_nothing_that_a_task_does_to_its_files_ends_it_while_it_lives(
    make_place: MakePlace, tmp_path: Path, shell: str, grouped: bool, cases: Sequence[tuple[str, str]]
) -> None:
    place = make_place(grouped, shell)
    tokens = forging(place, tmp_path, *((FORGERIES[forged], WRAPPERS[happens]) for forged, happens in cases))
    other = place.running("sleep", "1000")
    polled = dict(zip(cases, (report.state for report in place.poll(*tokens)), strict=True))
    assert {case: state for case, state in polled.items() if state not in ALIVE} == {}
    assert {place.state(token) for token in tokens[::4]} <= ALIVE  # a poll of one goes another way
    assert all(map(marked, tokens))
    place.runner.stop(place.target, [(token, 1.0) for token in tokens])
    reports = place.wait_for_all(tokens, {RemoteState.STOPPED, RemoteState.EXITED, RemoteState.NOSTART})
    stopped = {case: report.state for case, report in zip(cases, reports, strict=True)}
    assert stopped == dict.fromkeys(cases, RemoteState.STOPPED)
    assert not any(map(marked, tokens))
    assert place.state(other) is RemoteState.RUNNING


def test_a_renamed_exit_record_is_not_success_while_processes_live(host: WorkerHost, tmp_path: Path) -> None:
    """The wrapper lives: it records how the task ended."""
    gate = tmp_path / "gate"
    script = (
        'cd "$IRIS_TASK_DIR"; mv x.pending x.0; mv reserve.end end.1.0; : >"$2"\n'
        'while [ ! -e "$0" ]; do sleep 0.1; done; exit "$1"'
    )
    ready = {code: tmp_path / f"ready-{code}" for code in (0, 3)}
    tokens = [host.launch("sh", "-c", script, str(gate), str(code), str(ready[code])) for code in ready]
    until(lambda: all(path.exists() for path in ready.values()))
    assert [host.state(token) for token in tokens] == [RemoteState.RUNNING] * 2
    gate.touch()
    for code, report in zip(ready, host.wait_for_all(tokens), strict=True):
        assert (report.state, report.exit_code) == (RemoteState.EXITED, code)
        assert report.ended_ago is not None
        assert report.ended_ago < 60


def test_the_wrapper_records_how_its_task_ended_whatever_the_task_has_written(host: WorkerHost) -> None:
    forgeries = [each for name, each in FORGERIES.items() if "directory" not in name and name not in UNKNOWN]
    words, env = ("sh", "-c", 'cd "$IRIS_TASK_DIR"; eval "$0"; exit 3'), {"BYSTANDER": "1 2 nobody"}
    reports = host.all_ended(*(host.request(*words, forgery, env=env) for forgery in forgeries))
    ends = {forgery: (each.state, each.exit_code) for forgery, each in zip(forgeries, reports, strict=True)}
    assert ends == dict.fromkeys(forgeries, (RemoteState.EXITED, 3))


def test_an_orphaned_attempt_ends_as_recorded_only_if_the_record_is_complete(
    host: WorkerHost, tmp_path: Path
) -> None:
    expected = {
        "mv x.pending x.0": RemoteState.LOST,
        ": >x.0": RemoteState.LOST,
        "mv reserve.end end.1.0; : >x.0": RemoteState.LOST,
        "mv reserve.end end.1.0; mv x.pending x.3": RemoteState.LOST,
        "mv x.pending x.cancelled": RemoteState.LOST,
        "mv x.pending x.nostart.disk": RemoteState.LOST,
        "mv reserve.end end.1.0; mv x.pending x.0": RemoteState.EXITED,  # a complete one
    }
    tokens = forging(host, tmp_path, *((forgery, WRAPPERS["is killed"]) for forgery in expected))
    assert {report.state for report in host.poll(*tokens)} <= ALIVE
    list(map(end_all_of, tokens))
    ends = {
        forgery: report.state for forgery, report in zip(expected, host.wait_for_all(tokens), strict=True)
    }
    assert ends == expected


def test_a_setup_cannot_record_the_success_of_its_task(host: WorkerHost) -> None:
    forgery = 'cd "$IRIS_TASK_DIR"; mv reserve.end end.1.0; mv x.pending x.0'
    request = host.request("sh", "-c", "exit 3", setup=forgery)
    host.prepare(request)
    report = host.wait(request.token, FINAL | {RemoteState.PREPARED})
    assert report.state is not RemoteState.EXITED
    host.go(request.token)
    report = host.wait(request.token)
    assert (report.state, report.exit_code) != (RemoteState.EXITED, 0)


@pytest.mark.parametrize(
    ("kind", "grouped"),
    [pytest.param("marked", True, marks=pytest.mark.soak), ("marked", False), ("bare", True)],
)
def test_a_daemon_keeps_its_attempt_from_ending_when_it_has_killed_the_wrapper(
    make_place: MakePlace, tmp_path: Path, host_shell: str, kind: str, grouped: bool
) -> None:
    place = make_place(grouped, host_shell)
    pids = tmp_path / "pids"
    forgery = (
        f'{sys.executable} -c "$DAEMON" {pids} {kind}; rm -f group; mv reserve.end end.1.0; mv x.pending x.0'
    )
    script = f'cd "$IRIS_TASK_DIR"; {forgery}; kill -KILL $PPID'
    token = place.launch("sh", "-c", script, env={"DAEMON": DAEMON})
    until(lambda: pids_in(pids))
    (daemon,) = pids_in(pids)
    try:
        report = place.wait(token, FINAL | {RemoteState.ORPHANED})
        assert report.state is RemoteState.ORPHANED
        assert is_alive(daemon)
        assert place.stopped(token).state is RemoteState.STOPPED
        assert not is_alive(daemon)
    finally:
        kill(daemon)


def test_a_daemon_is_ended_with_its_task_though_the_stop_looks_decided(
    host: WorkerHost, tmp_path: Path
) -> None:
    """Without `stop.idle` the wrapper must end the daemon itself, as there is no stopper."""
    pids = tmp_path / "pids"
    script = f'cd "$IRIS_TASK_DIR"; {sys.executable} -c "$DAEMON" {pids} marked; rm stop.idle; exit 3'
    report = host.ended("sh", "-c", script, env={"DAEMON": DAEMON})
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    assert not any(is_alive(pid) for pid in pids_in(pids))


@pytest.mark.soak
def test_a_forged_success_that_is_stopped_is_stopped(host: WorkerHost, tmp_path: Path) -> None:
    (token,) = forging(host, tmp_path, (SUCCESS, WRAPPERS["lives"]))
    assert host.stopped(token).state is RemoteState.STOPPED
    assert host.state(token) is RemoteState.STOPPED


def test_a_forged_success_does_not_outlive_its_lease(host: WorkerHost, tmp_path: Path) -> None:
    for lease in LIMITS:
        done = tmp_path / f"done-{lease:g}"
        token = host.launch("sh", "-c", FORGE, str(done), SUCCESS, ":", lease=lease, grace=1.0)
        report = host.wait(token, renew=False)
        if done.exists():
            assert (report.state, report.cause) == (RemoteState.CANCELLED, "lease")
            until_gone(token)
            return
    raise AssertionError("the lease always ended before the task forged its record")


@pytest.mark.parametrize("ends", ["by itself", pytest.param("by a stop", marks=pytest.mark.soak)])
def test_a_report_is_of_the_names_as_the_last_process_left_them(
    host: WorkerHost, make_host: MakeHost, tmp_path: Path, ends: str
) -> None:
    """The poll reads the forged success before the attempt ends, and the true end after that."""
    held = HeldPoll(host, tmp_path / "held", make_host)
    gate, ready = tmp_path / "gate", tmp_path / "ready"
    script = (
        'cd "$IRIS_TASK_DIR"; mv reserve.end end.1.0; mv x.pending x.0; : >"$1"\n'
        'while [ ! -e "$0" ]; do sleep 0.1; done; exit 3'
    )
    token = host.launch("sh", "-c", script, str(gate), str(ready))
    until(ready.exists)
    held.count(token)
    poll = held.begin(token)
    if ends == "by itself":
        gate.touch()
        until_gone(token)
    else:
        assert host.stopped(token).state is RemoteState.STOPPED
    report = held.end(poll)
    expected = (RemoteState.EXITED, 3) if ends == "by itself" else (RemoteState.STOPPED, None)
    assert (report.state, report.exit_code) == expected


def lease_ended(directory: Path) -> bool:
    return any(directory.glob("lease.out.*"))


def has_either(done: Path, directory: Path) -> bool:
    return done.exists() or lease_ended(directory)


def test_a_poll_in_progress_when_the_lease_ends_reports_the_lease(
    host: WorkerHost, make_host: MakeHost, tmp_path: Path
) -> None:
    held = HeldPoll(host, tmp_path / "held", make_host)
    held.count(*forging(host, tmp_path, (SUCCESS, WRAPPERS["lives"])))
    for lease in LIMITS:
        done = tmp_path / f"done-{lease:g}"
        token = host.launch("sh", "-c", FORGE, str(done), SUCCESS, ":", lease=lease, grace=1.0)
        until(partial(has_either, done, host.attempt_dir(token)))
        poll = held.begin(token, renew=False)
        in_time = not lease_ended(host.attempt_dir(token))
        until_gone(token)
        report = held.end(poll)
        if in_time:
            assert (report.state, report.cause) == (RemoteState.CANCELLED, "lease")
            return
    raise AssertionError("the lease always ended before the poll had read the names")


def test_the_files_of_a_forged_end_are_not_reaped_while_it_lives(host: WorkerHost, tmp_path: Path) -> None:
    (token,) = forging(host, tmp_path, (SUCCESS, WRAPPERS["is killed"]))
    assert host.reaped(token) == set()
    assert (host.attempt_dir(token) / "run").exists()


def test_a_bystander_named_as_the_wrapper_is_not_signalled(host: WorkerHost, tmp_path: Path) -> None:
    """Otherwise its session would count as that of the attempt."""
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        token = host.running("sleep", "1000")
        kill(host.wrapper(token))
        line = f"{bystander.pid} {start_ticks(bystander.pid)} {host.boot_id}\n"
        (host.attempt_dir(token) / "pid").write_text(line)
        assert host.state(token) is RemoteState.ORPHANED
        assert host.stopped(token, grace=0).state is RemoteState.STOPPED
        assert not marked(token)
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_only_an_attempt_that_claims_its_end_is_searched_for(probed_host: ProbedHost, tmp_path: Path) -> None:
    """A search reads the environment of every process: at most once per call, and never for running attempts."""
    tools = tools_of("dash", tmp_path / "tools")
    log = tmp_path / "searches"
    (tools / "grep").write_text(f'#!/bin/sh\necho x >>{log}\nexec {shutil.which("grep")} "$@"\n')
    (tools / "grep").chmod(0o755)
    host = probed_host(tools=tools)
    running = [host.running("sleep", "1000") for _ in range(2)]
    ended = [host.launch("true") for _ in range(3)]
    for token in ended:
        host.wait(token)
        until_gone(token)
    log.write_text("")
    assert {report.state for report in host.poll(*running)} == {RemoteState.RUNNING}
    assert log.read_text() == ""
    assert {report.state for report in host.poll(*running, *ended)} == {
        RemoteState.RUNNING,
        RemoteState.EXITED,
    }
    assert log.read_text() == "x\n"
